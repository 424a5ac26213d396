// SPDX-License-Identifier: Apache-2.0

// Package bench measures how an agent wires ports: beside the Python agent and beside the floor (package lab/floor), on the
// same host of the same lab with the same server, in one run. `make bench-wiring` runs it and prints one table.
//
//   - Times run from the start of the ovs-vsctl that plugs, to the server's news that the port is ACTIVE. The news is what
//     neutron-server sends to all agents after its database has the change, so nothing is polled while a time is taken.
//   - Ports are internal interfaces on one vxlan network, created and bound before. Another host has a port on the network,
//     and the measured host keeps one plugged all the time: the network is known there and its tunnel exists.
//   - CPU is what the kernel counts for the agent's process and all helpers started for it, dead ones included. The children
//     of a process that detached from the agent and ended meanwhile are missing, to the Python agent's advantage.
//   - Patchbay and the floor take turns where times are compared, and medians are compared: load on the machine from
//     outside falls on both. The Python agent takes one turn at the end. The load average stands above the table.
//   - The floor asks about many ports in two ways (see floor.Batches); the better figure counts. That it leaves the flows,
//     rows and calls that Patchbay makes of a port is tested first.
//   - Memory is the resident set of the process, and for pushes how it grows over 10,000 of them after 10,000 others;
//     a benchmark beside it counts the bytes on the heap that stay after a garbage collection.
//
// `make bench-peers` (TestPeers) measures filtered ports, beside the Python agent and ovn-controller.
//
// The tests need root and the packages of the lab, and the build tag bench. Environment:
//
//	PATCHBAY_BENCH=1         fail when a target is missed; without it misses are only shown
//	PATCHBAY_BENCH_LAB=DIR   use the lab that runs in DIR with two hosts, instead of a new one
//	PATCHBAY_BENCH_SERVER=sim  a simulated server (package lab/sim) instead of neutron-server: what depends on the agent
//	                         alone (CPU, memory, order) shows in minutes, and times are compared with a lower floor
//	PATCHBAY_BENCH_IDLE=5m   how long the agent is watched doing nothing; one minute otherwise
//	PATCHBAY_BENCH_RUNS=1    how often what is compared by medians is done; 3 or 5 times otherwise
//	PATCHBAY_BENCH_PORTS=40  how many ports are plugged at once for the comparison; 100 otherwise
//
// One part alone: go test -tags bench -run 'TestWiring/(same|push|plug|bad|size|scale)' ./bench/
package bench
