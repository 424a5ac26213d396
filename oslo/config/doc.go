// SPDX-License-Identifier: Apache-2.0

// Package config reads configuration the way Python's oslo.config does, so that
// a Go program can take the files, the environment and the command line of an
// OpenStack service as they are.
//
// # From declaration to value
//
// A program declares its options once, as data, in a [Schema]. [Load] then
// reads the command line, the files it names and the environment, and gives a
// [Config]. Values are converted when they are read: [Config.Get] returns a
// [Value], or an error that says which option, where it was set and what is
// wrong with it. A broken value of an option that nobody reads harms nobody,
// exactly as in the original.
//
//	schema, err := config.NewSchema(
//		config.Option{Name: "host", Type: config.HostAddress{}},
//		config.Option{Name: "debug", Type: config.Bool{}, Default: false, CLI: true, Mutable: true},
//		config.Option{Group: "ovs", Name: "of_listen_port", Type: config.Port(), Default: 6633},
//	)
//	conf, err := config.Load(schema, config.Input{
//		Args: os.Args[1:], Env: os.Environ(), Project: "neutron", Program: "neutron-openvswitch-agent",
//	})
//	port, err := conf.Get("ovs", "of_listen_port")
//	fmt.Println(port.Int(), port.Origin())
//
// # Which value wins
//
// Files are read in the order in which --config-file and --config-dir stand on
// the command line; a later file beats an earlier one. An option that may be
// given on the command line takes part in that order too: a file that follows
// the flag beats the flag. The environment variable OS_GROUP__OPTION beats the
// files, and also beats a flag when any file sets the same option; a flag that
// no file sets beats the environment. Then comes the default.
//
// # What is kept from the original, oddities included
//
// The package is tested against the original with generated configurations and
// must agree with it on every value and on the class of every error. Some
// consequences surprise people, so they are named here: section names ignore
// case, except that only the exact spelling DEFAULT is the top level; option
// names in files are spelled with underscores and respect case; "$name" of an
// unknown option is an error (write "$$" or "\$" for a dollar sign); an empty
// number means "not set"; a multi-valued option taken from the environment
// gives one value per character.
//
// # What is left out
//
// Positional and sub-command options, the URI and range types, and the
// config_source drivers. A directory given with --config-dir is taken
// literally; the original expands wildcards in it.
//
// # Secrets
//
// The value of an option declared Secret, and of every option that refers to
// one, is masked by [Value.String] and never becomes part of an error.
//
// # Stability
//
// The package follows semantic versioning. Before v1 a minor version may change
// or remove exported names, and CHANGELOG.md says how to follow; a patch version
// changes none. The two latest releases of Go are supported. Texts of errors
// may change at any time; their types do not.
// docs/reference/api.md of the repository has the whole promise.
package config
