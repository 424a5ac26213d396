// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package openflow

import "net"

func growSendBuffer(net.Conn) {}
