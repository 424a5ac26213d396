// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// Load reads the configuration of the agent. args are the arguments after the
// program's or sub-command's name, env is in the form of os.Environ.
//
// All faults are returned together: a [Problem], or [config.Errors] of them.
// config.ErrHelp and config.ErrVersion mean that the command line asked for
// them.
func Load(args, env []string) (*Options, error) {
	table := rows(thisMachine())
	schema, err := schemaOf(table)
	if err != nil {
		return nil, fmt.Errorf("declaring the options: %w", err)
	}
	conf, err := config.Load(schema, config.Input{
		Args: args, Env: env, Project: project, Program: Program, Version: true,
	})
	if err != nil {
		return nil, problems(err)
	}
	o, errs := assign(conf, table)
	if err := problems(errs...); err != nil {
		return nil, err
	}
	return o, nil
}

// problems gives all errors the form of a Problem.
func problems(errs ...error) error {
	var out config.Errors
	for _, err := range errs {
		var several config.Errors
		switch {
		case errors.Is(err, config.ErrHelp), errors.Is(err, config.ErrVersion):
			return err
		case errors.As(err, &several):
			for _, e := range several {
				_, p := diagnose(e)
				out = append(out, p)
			}
		default:
			_, p := diagnose(err)
			out = append(out, p)
		}
	}
	switch len(out) {
	case 0:
		return nil
	case 1:
		return out[0]
	}
	return out
}

// assign reads every option. It goes on after an error, to find them all.
func assign(conf *config.Config, table []row) (*Options, []error) {
	o := &Options{conf: conf}
	var errs []error
	for _, r := range table {
		v, err := conf.Get(r.Group, r.ID().Option)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if r.field == nil {
			continue
		}
		if err := set(r.field(o), v); err != nil {
			id := r.ID()
			errs = append(errs, &config.ValueError{Group: id.Group, Option: id.Option, Origin: v.Origin(), Reason: err.Error()})
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	o.derive()
	for _, p := range o.check() {
		errs = append(errs, p)
	}
	return o, errs
}

// parser is a field that takes more than a conversion.
type parser func(config.Value) error

// set stores a value in the field that a row points to. Integers and numbers
// become durations in seconds where the field is one.
func set(field any, v config.Value) error {
	switch f := field.(type) {
	case *string:
		*f = v.Text()
	case *Secret:
		*f = NewSecret(v.Text())
	case *bool:
		*f = v.Bool()
	case **bool:
		if v.IsSet() {
			b := v.Bool()
			*f = &b
		}
	case *int:
		return setInt(f, v)
	case **int:
		if v.IsSet() {
			*f = new(int)
			return setInt(*f, v)
		}
	case *time.Duration:
		return setDuration(f, v)
	case *[]string:
		*f = v.List()
	case *map[string]string:
		*f = map[string]string{}
		for _, p := range v.Dict() {
			(*f)[p.Key], _ = p.Value.(string)
		}
	case *[]Mapping:
		return setMappings(f, v.List())
	case parser:
		return f(v)
	case *[]uint16:
		*f = ethertypes(v.List())
	default:
		return fmt.Errorf("has no place of type %T", field)
	}
	return nil
}

// maxNumber bounds integers: nothing here is a sensible number beyond it, and
// seconds up to it fit in a duration.
const maxNumber = 1<<31 - 1

func setInt(f *int, v config.Value) error {
	n := v.Int()
	if n > maxNumber || n < -maxNumber {
		return fmt.Errorf("is %d, which is too large", n)
	}
	*f = int(n)
	return nil
}

func setDuration(f *time.Duration, v config.Value) error {
	seconds := v.Float()
	if _, float := v.Any().(float64); !float {
		seconds = float64(v.Int())
	}
	if !(seconds <= maxNumber && seconds >= -maxNumber) { // also refuses "nan"
		return fmt.Errorf("is %s seconds, which is not a sensible time", v)
	}
	*f = time.Duration(seconds * float64(time.Second))
	return nil
}

// derive fills what follows from several options.
func (o *Options) derive() {
	o.Rabbit.DirectMandatory = true // direct_mandatory_flag cannot be switched off any more
	// Distributed routers hide their gateways from other hosts, so that questions for them are answered here.
	routing := o.Agent.DistributedRouting && len(o.Agent.TunnelTypes) > 0
	o.Agent.ARPResponder = (o.Agent.ARPResponder || routing) && o.Agent.L2Population
	if o.Agent.DSCP != nil && *o.Agent.DSCP == 0 {
		o.Agent.DSCP = nil
	}
	o.OVS.Placement.TunnelledNetworkName = o.ML2.TunnelledNetworkRPName
	switch {
	case o.Log.File == "" && o.Log.Dir != "":
		o.Log.File = filepath.Join(o.Log.Dir, Program+".log")
	case o.Log.File != "" && o.Log.Dir != "" && !filepath.IsAbs(o.Log.File):
		o.Log.File = filepath.Join(o.Log.Dir, o.Log.File)
	}
}

// Reload reads the same files again, for SIGHUP. It returns the options now in
// force: those that may change at run time have their new values, the others
// the old ones. After an error the options in force are still o's.
func Reload(o *Options) (*Options, config.Changes, error) {
	changes, err := o.conf.Reload()
	if err != nil {
		return nil, config.Changes{}, problems(err)
	}
	next, errs := assign(o.conf, rows(thisMachine()))
	if len(errs) > 0 {
		return nil, config.Changes{}, problems(errs...)
	}
	// What a transport URL has overridden stays so: none of it is mutable.
	next.Rabbit = o.Rabbit
	return next, changes, nil
}

// Value is an option with its origin. Groups are matched as in a file.
func (o *Options) Value(group, name string) (config.Value, error) {
	if declared, ok := o.conf.Schema().Option(group, name); ok {
		group = declared.Group
	}
	return o.conf.Get(group, name)
}

// Config is the configuration behind the options.
func (o *Options) Config() *config.Config { return o.conf }

// Override applies the query part of a transport URL: each key names an option
// of [oslo_messaging_rabbit]. A key that names no option is an error, and so is
// a value that the option's type refuses.
func (o *Options) Override(query map[string]string) error {
	return override(o, rows(thisMachine()), query)
}
