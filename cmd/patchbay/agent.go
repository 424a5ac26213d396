// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/runner"
	"github.com/patchbay-sdn/patchbay/internal/tape"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/config"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

func newAgentCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "agent [--config-file FILE]... [--config-dir DIR]... [option]...",
		Short: "Run the agent",
		Long: `Run the agent in the foreground, with the arguments that neutron-openvswitch-agent takes. The order of
--config-file, --config-dir and options matters: a later one overrides an earlier one.

On SIGTERM the agent deletes its queues from the broker and exits. On SIGHUP it reads the files again and applies
the options that can change at run time. On SIGUSR2 it writes a report of its state to [oslo_reports] log_dir, or to
standard error.`,
		// oslo.config's arguments are ordered, which a flag set would lose.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := options.Load(args, os.Environ())
			switch {
			case errors.Is(err, config.ErrHelp):
				return cmd.Help()
			case errors.Is(err, config.ErrVersion):
				fmt.Fprintln(cmd.OutOrStdout(), options.Program, version)
				return nil
			case err != nil:
				return ended{agentFailed, fmt.Sprintf("the configuration cannot be used:\n%v", err)}
			}
			if err := runAgent(cmd.Context(), o); err != nil {
				return ended{agentFailed, err.Error()}
			}
			return nil
		},
	}
}

// maxProcs is how many cores the agent uses at a time. The loop is one goroutine, and what runs beside it mostly waits; further
// threads would only look for work, which costs the more the more cores a host has, and the cores are the VMs'.
const maxProcs = 2

func runAgent(ctx context.Context, o *options.Options) error {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), maxProcs))
	}
	limitMemory(os.Getenv, os.DirFS("/"))
	level := &slog.LevelVar{}
	log, files := openLog(o, level)
	defer files.close()
	if err := noDumps(); err != nil {
		log.Warn("core dumps not disabled, they would contain secrets", "err", err)
	}
	if err := startAgent(ctx, o, logging{log, level, files}); err != nil {
		// Also into the log: under a service manager nobody reads standard error.
		log.Error("agent failed", "err", err)
		return err
	}
	return nil
}

// logging is the log, its level, and the files that it is written to.
type logging struct {
	log   *slog.Logger
	level *slog.LevelVar
	files logFiles
}

func startAgent(ctx context.Context, o *options.Options, to logging) error {
	log := to.log
	url, err := usable(o)
	if err != nil {
		return err
	}
	rows := databaseConfig(o)
	rows.OnLocalSocket = func(socket string, refused error) {
		log.Warn("ovsdb-server does not listen at [ovs] ovsdb_connection, using the unix socket; os-vif may need the address, see docs/how-to/install.md", "socket", socket, "err", refused)
	}
	database, err := ovsdb.New(rows)
	if err != nil {
		return fmt.Errorf("[ovs] ovsdb_connection: %w", err)
	}
	notifier := observe.NewNotifier(os.Getenv, os.Getpid())
	cfg, err := agentConfig(ctx, o, extensionsOf(o))
	if err != nil {
		return err
	}
	cfg.Link = runner.Supervised(func(ctx context.Context, bridge string) (*openflow.Conn, error) { return dialBridge(ctx, o, bridge) })
	cfg.PacketLink = cfg.Link
	if err := trackConnections(&cfg, o); err != nil {
		return err
	}
	if cfg.World.Filter {
		cfg.Rules, cfg.RulesConfig = hostRules(o)
	}
	records, files := openRecords(o, log)
	defer files.close()
	to.files, cfg.Records = append(to.files, files...), records
	proxy, err := newMetadataProxy(o)
	if err != nil {
		return err
	}
	if proxy != nil {
		cfg.Metadata = proxy
	}
	cfg.Resolver = &resolver.Client{}
	cfg.Statistics, cfg.Log, cfg.Notifier = database.Statistics, log, notifier
	recorder := newTape(o, log)
	if recorder != nil {
		cfg.Tape = recorder
	}
	a, err := agent.New(cfg, database, func(onEvent func(messaging.Event)) (agent.Broker, error) {
		return messaging.Open(brokerConfig(o, url, onEvent))
	})
	if err != nil {
		return fmt.Errorf("the broker: %w", err)
	}
	log.Info("agent starting", "version", version, "host", o.Default.Host)
	for _, p := range o.Advice() {
		log.Warn("setting has no effect or is insecure, see patchbay config check", "setting", p.Sentence, "at", p.Origin.String())
	}

	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	var current atomic.Pointer[options.Options]
	current.Store(o)
	source := unmet{proxied{a, proxy}, func() []inspect.Unmet { return unmetBy(o, to.files, net.InterfaceAddrs) }}
	answered := serveAdmin(ctx, source, o, current.Load, log)
	inherited, err := observe.Listeners(os.Getenv, os.Getpid())
	if err != nil {
		log.Warn("sockets from systemd not usable", "err", err)
	}
	released := holdController(ctx, o, inherited, log)
	var beside sync.WaitGroup
	beside.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				current.Store(reload(current.Load(), log, to.level, notifier))
			}
		}
	})
	usr2 := make(chan os.Signal, 1)
	signal.Notify(usr2, syscall.SIGUSR2)
	defer signal.Stop(usr2)
	beside.Go(func() { (&reporter{source, current.Load, os.Stderr, log}).serve(ctx, usr2) })
	beside.Go(func() { awaitEndpoint(ctx, o, net.InterfaceAddrs, log) })
	err = a.Run(ctx)
	stop()
	beside.Wait()
	answered()
	released()
	recorder.Close()
	return err
}

// tapeFile is where the agent records the inputs of its decisions.
func tapeFile(o *options.Options) string { return filepath.Join(o.Default.StatePath, "patchbay.tape") }

// newTape returns the recorder of the agent's inputs; nil: none is wanted.
func newTape(o *options.Options, log *slog.Logger) *tape.Recorder {
	if o.Patchbay.TapeSize == 0 {
		return nil
	}
	return tape.NewRecorder(tapeFile(o), int64(o.Patchbay.TapeSize)<<20, log.Warn)
}

// usable checks what a start needs of the options, and takes over those that the transport URL holds.
func usable(o *options.Options) (messaging.URL, error) {
	if err := refuse(o); err != nil {
		return messaging.URL{}, err
	}
	url, err := messaging.ParseURL(o.Default.TransportURL.Reveal())
	if err != nil {
		return messaging.URL{}, fmt.Errorf("[DEFAULT] transport_url: %w", err)
	}
	return url, o.Override(url.Query)
}

func databaseConfig(o *options.Options) ovsdb.Config {
	return ovsdb.Config{
		Endpoint:    o.OVS.OVSDBConnection,
		SSL:         ovsdb.SSL{PrivateKey: o.OVS.SSLKeyFile, Certificate: o.OVS.SSLCertFile, CACert: o.OVS.SSLCACertFile},
		PreferLocal: !isSet(o, "ovs", "ovsdb_connection"),
		Timeout:     o.OVS.OVSDBTimeout,
	}
}

// dialBridge connects to a bridge, within the times that are set.
func dialBridge(ctx context.Context, o *options.Options, bridge string) (*openflow.Conn, error) {
	connect, request := bridgeTimes(o)
	if connect > 0 {
		bounded, cancel := context.WithTimeout(ctx, connect)
		defer cancel()
		ctx = bounded
	}
	return openflow.Dial(ctx, openflow.MgmtSocket(bridge), openflow.Config{Timeout: request})
}

// bridgeTimes are how long connecting to a bridge and a request may take; 0: as long as without an option. The Python agent's defaults are
// minutes, since its thread has to get its turn meanwhile.
func bridgeTimes(o *options.Options) (connect, request time.Duration) {
	if isSet(o, "ovs", "of_connect_timeout") {
		connect = max(o.OVS.OFConnectTimeout, 0)
	}
	if isSet(o, "ovs", "of_request_timeout") {
		request = max(o.OVS.OFRequestTimeout, 0)
	}
	return connect, request
}

// isSet says whether an option has a value of its own.
func isSet(o *options.Options, group, name string) bool {
	v, err := o.Value(group, name)
	return err == nil && v.Origin().Kind != config.FromDefault
}

// reported is the state report as far as the options say, with the version where they ask for it.
func reported(ctx context.Context, o *options.Options) neutron.Configurations {
	c := agent.Configurations(ctx, o)
	if o.Patchbay.ReportVersion {
		c.Patchbay = version
	}
	return c
}

// agentConfig is the agent's configuration as far as it follows from the options, with the extensions that are made.
func agentConfig(ctx context.Context, o *options.Options, made []madeExtension) (agent.Config, error) {
	extensions, err := makers(made)
	if err != nil {
		return agent.Config{}, err
	}
	text, _ := json.Marshal(made) // plain data
	return agent.Config{
		Host:           o.Default.Host,
		Configurations: reported(ctx, o),
		ReportInterval: o.Agent.ReportInterval,
		PortsPerReport: o.Default.RPCResourcesProcessingStep,
		World:          worldConfig(o),
		Settings:       settings(o),
		Extensions:     extensions,
		ExtensionsMade: text,
		Forwarding:     forwarding.Host{},
		Version:        version,
		Snapshot:       filepath.Join(o.Default.StatePath, "patchbay.snapshot"),
		Ping:           o.Default.RPCPingEnabled,
	}, nil
}

// refuse stops the start on options that ask for what Patchbay does not have. All reasons are given at once.
func refuse(o *options.Options) error {
	var reasons []string
	for _, p := range o.Unsupported() {
		reasons = append(reasons, p.Error())
	}
	if len(reasons) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(reasons, "\n"))
}

func worldConfig(o *options.Options) world.Config {
	c := world.Config{
		Host: o.Default.Host, IntegrationBridge: o.OVS.IntegrationBridge, Physical: map[string]string{},
		TunnelTypes: o.Agent.TunnelTypes, L2Population: o.Agent.L2Population, ARPResponder: o.Agent.ARPResponder,
	}
	sg := o.SecurityGroup
	// The firewall checks senders itself; if it is not used nobody does, as with the Python agent.
	c.AntiSpoof = sg.Driver() != options.FirewallOpenVSwitch
	c.FilterTables = sg.Driver() == options.FirewallOpenVSwitch
	c.Hybrid = sg.Driver() == options.FirewallHybrid && sg.Enabled
	c.Filter = c.FilterTables && sg.Enabled || c.Hybrid
	c.FailClosed = c.FilterTables && c.Filter && o.Patchbay.FailClosed
	c.BridgedOnly = c.Hybrid && o.Patchbay.FailClosed
	c.PermittedEtherTypes, c.EgressDirect = sg.PermittedEthertypes, o.Agent.ExplicitEgressDirect
	for _, m := range o.OVS.BridgeMappings {
		c.Physical[m.Physnet] = m.Bridge
	}
	if c.Tunnels() {
		c.TunnelBridge, c.IntPatch, c.TunPatch = o.OVS.TunnelBridge, o.OVS.IntPeerPatchPort, o.OVS.TunPeerPatchPort
		c.LocalIP, _ = netip.ParseAddr(o.OVS.LocalIP) // checked before
	}
	return c
}

// runDir is where Open vSwitch has its sockets.
func runDir(o *options.Options) string {
	return filepath.Dir(strings.TrimPrefix(openflow.MgmtSocket(o.OVS.IntegrationBridge), "unix:"))
}

func settings(o *options.Options) pipeline.Settings {
	s := pipeline.Settings{
		DatapathType: o.OVS.DatapathType, MACTableSize: o.OVS.BridgeMACTableSize,
		Controller:      fmt.Sprintf("tcp:%s:%d", o.OVS.OFListenAddress, o.OVS.OFListenPort),
		InactivityProbe: int(o.OVS.OFInactivity / time.Millisecond),
		VXLANPort:       o.Agent.VXLANUDPPort, DontFragment: o.Agent.DontFragment, TunnelChecksum: o.Agent.TunnelCsum,
		IGMPSnooping: o.OVS.IGMPSnooping, IGMPFlood: o.OVS.IGMPFlood, IGMPFloodReports: o.OVS.IGMPFloodReports,
		IGMPFloodUnregistered: o.OVS.IGMPFloodUnregistered,
	}
	switch {
	case o.Agent.DSCPInherit:
		s.TOS = "inherit"
	case o.Agent.DSCP != nil:
		s.TOS = strconv.Itoa(*o.Agent.DSCP << 2)
	}
	return s
}

func brokerConfig(o *options.Options, url messaging.URL, onEvent func(messaging.Event)) messaging.Config {
	return messaging.Config{
		URL: url, Exchange: o.Default.ControlExchange, Rabbit: o.Rabbit, Program: options.Program, Host: o.Default.Host,
		Timeout: o.Default.RPCResponseTimeout, MaxTimeout: o.Default.RPCResponseMaxTimeout,
		Context: func(context.Context) map[string]any { return neutron.RequestContext(time.Now()) },
		OnEvent: onEvent, Hub: "patchbay", HubStream: o.Patchbay.FanoutStream,
	}
}

// reload reads the files again, takes over what may change at run time, and names what may not.
func reload(o *options.Options, log *slog.Logger, level *slog.LevelVar, n *observe.Notifier) *options.Options {
	notify := func(err error) {
		if err != nil {
			log.Warn("sd_notify failed", "err", err)
		}
	}
	notify(n.Reloading())
	defer func() { notify(n.Ready("reporting to neutron-server")) }()
	next, changes, err := options.Reload(o)
	if err != nil {
		log.Error("configuration not reloaded, keeping the current one", "err", err)
		return o
	}
	level.Set(next.Logging().Level)
	for _, c := range changes.Changed {
		log.Info("option changed", "option", c.New.Option().Name, "value", c.New.String())
	}
	for _, name := range changes.Ignored {
		log.Warn("option changed, restart needed", "option", name.Group+"."+name.Option)
	}
	log.Info("configuration reloaded", "changed", len(changes.Changed), "need_restart", len(changes.Ignored))
	return next
}
