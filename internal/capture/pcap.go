// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"fmt"
	"io"
)

// File writes frames as a pcap file with nanoseconds.
type File struct{ w io.Writer }

// NewFile begins a file.
func NewFile(w io.Writer) (*File, error) {
	b := binary.LittleEndian.AppendUint32(nil, 0xa1b23c4d) // times in nanoseconds
	b = binary.LittleEndian.AppendUint16(b, 2)
	b = binary.LittleEndian.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...) // of the time zone, of no use
	b = binary.LittleEndian.AppendUint32(b, maxFrame)
	b = binary.LittleEndian.AppendUint32(b, 1) // Ethernet
	if _, err := w.Write(b); err != nil {
		return nil, fmt.Errorf("writing packets: %w", err)
	}
	return &File{w}, nil
}

// Write adds a frame.
func (f *File) Write(frame *Frame) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(frame.Time.Unix())) //nolint:gosec // the format ends in 2106
	b = binary.LittleEndian.AppendUint32(b, uint32(frame.Time.Nanosecond()))
	for range 2 { // as captured, and as it was
		b = binary.LittleEndian.AppendUint32(b, uint32(len(frame.Data))) //nolint:gosec // bounded by maxFrame
	}
	if _, err := f.w.Write(append(b, frame.Data...)); err != nil {
		return fmt.Errorf("writing packets: %w", err)
	}
	return nil
}
