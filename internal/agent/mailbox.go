// SPDX-License-Identifier: Apache-2.0

package agent

import "sync"

// mailbox takes events from anywhere without ever making the sender wait, and gives them to the loop in the order in
// which they came. Senders are bounded elsewhere: work beside the loop by being one piece at a time. What the server sends by
// itself has a box with a bound of its own, see pushbox.
type mailbox[T any] struct {
	ready chan struct{} // has a token while something may be in the box

	mu    sync.Mutex
	items []T
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(v T) {
	m.mu.Lock()
	m.items = append(m.items, v)
	m.mu.Unlock()
	signal(m.ready)
}

func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}
