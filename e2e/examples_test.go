// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestExamples has the deployment tools' own templates make what they put on a host from deploy/examples. That containers and services work with it,
// TestTools shows.
func TestExamples(t *testing.T) {
	checkouts := os.Getenv(envTools)
	if checkouts == "" {
		t.Fatalf("%s names no directory with checkouts of the tools", envTools)
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "../deploy/test/render", checkouts, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := func(t *testing.T, name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	// starts: the agent would start with the file, after others.
	starts := func(t *testing.T, path, option string, others ...string) {
		t.Helper()
		if !strings.Contains(text(t, path), option) {
			t.Errorf("%s has no %s:\n%s", path, option, text(t, path))
		}
		args := []string{"config", "check"}
		for _, file := range append(others, path) {
			args = append(args, "--config-file", filepath.Join(dir, file))
		}
		if out, err := exec.CommandContext(t.Context(), program(t, "PATCHBAY_BIN", "patchbay"), args...).CombinedOutput(); err != nil {
			t.Errorf("config check of %s: %v\n%s", path, err, out)
		}
	}
	t.Run("kolla-ansible", func(t *testing.T) {
		var made struct {
			Image       string
			Privileged  bool
			Volumes     []string
			Healthcheck struct{ Test []string }
		}
		var config struct{ Command string }
		readYAML(t, text(t, "kolla-ansible/container.json"), &made)
		readYAML(t, text(t, "kolla-ansible/config.json"), &config)
		want := kollaVars(t)
		if made.Image != want.Image || !made.Privileged || !slices.Equal(made.Healthcheck.Test, want.Test) || len(want.Volumes) == 0 {
			t.Errorf("the container is %+v, want %+v", made, want)
		}
		for _, v := range want.Volumes {
			if !slices.Contains(made.Volumes, v) {
				t.Errorf("the container's volumes are %v, without %s", made.Volumes, v)
			}
		}
		if !strings.HasPrefix(config.Command, "neutron-openvswitch-agent --config-file ") {
			t.Errorf("the command is %q", config.Command)
		}
		starts(t, "kolla-ansible/openvswitch_agent.ini", "[patchbay]\nreport_version = true")
	})
	t.Run("openstack-ansible", func(t *testing.T) {
		var want osaVariables
		exampleOf(t, "openstack-ansible/host_vars.yml", &want)
		unit := text(t, "openstack-ansible/neutron-openvswitch-agent.service")
		lines := strings.Split(unit, "\n")
		for name, value := range want.Unit["Service"] {
			if !slices.Contains(lines, fmt.Sprintf("%s = %v", name, value)) || strings.Count(unit, "\n"+name+" = ") != 1 {
				t.Errorf("%s is not once %v in\n%s", name, value, unit)
			}
		}
		if !slices.Contains(lines, "User = neutron") {
			t.Errorf("the user is another in\n%s", unit)
		}
		starts(t, "openstack-ansible/openvswitch_agent.ini", "[patchbay]\nreport_version = True")
	})
	t.Run("openstack-helm", func(t *testing.T) { renderedChart(t, text(t, "openstack-helm/manifests.yaml"), dir, starts) })
}

// renderedChart looks at the DaemonSet and the agent's file.
func renderedChart(t *testing.T, manifests, dir string, starts func(t *testing.T, path, option string, others ...string)) {
	var want helmValues
	exampleOf(t, "openstack-helm/values.yaml", &want)
	ours := want.Pod.Mounts.Agent.Agent
	sets, files := 0, 0
	for doc := range strings.SplitSeq(manifests, "\n---\n") {
		var made struct {
			Kind string
			Data map[string][]byte
			Spec struct {
				UpdateStrategy struct{ Type string }
				Template       struct {
					Spec struct {
						Containers []struct {
							Name, Image  string
							VolumeMounts []struct{ Name, MountPath string }
						}
						Volumes []struct {
							Name     string
							HostPath struct{ Path string }
						}
					}
				}
			}
		}
		readYAML(t, doc, &made)
		if data, ok := made.Data["openvswitch_agent.ini"]; ok && made.Kind == "Secret" {
			files++
			const file, local = "openstack-helm/openvswitch_agent.ini", "openstack-helm/ml2-local-ip.ini" // the init container writes the second
			writeFile(t, filepath.Join(dir, file), string(data), 0o644)
			writeFile(t, filepath.Join(dir, local), "[ovs]\nlocal_ip = \"192.0.2.11\"\n", 0o644)
			starts(t, file, "state_path = "+ours.VolumeMounts[0].MountPath, local)
			starts(t, file, "[patchbay]\nreport_version = true", local)
		}
		if made.Kind != "DaemonSet" {
			continue
		}
		sets++
		if got := made.Spec.UpdateStrategy.Type; got != want.Pod.Lifecycle.Upgrades.DaemonSets.Strategy {
			t.Errorf("pods are replaced by %s", got)
		}
		pod := made.Spec.Template.Spec
		for _, v := range ours.Volumes {
			if !slices.ContainsFunc(pod.Volumes, func(have struct {
				Name     string
				HostPath struct{ Path string }
			}) bool {
				return have.Name == v.Name && have.HostPath == v.HostPath
			}) {
				t.Errorf("the pod has no volume %+v", v)
			}
		}
		for _, c := range pod.Containers {
			if c.Image != want.Images.Tags["neutron_openvswitch_agent"] {
				t.Errorf("container %s has the image %s", c.Name, c.Image)
			}
			at := map[string]string{}
			for _, m := range c.VolumeMounts {
				if at[m.MountPath] != "" { // which the API server refuses
					t.Errorf("container %s has two volumes at %s: %s and %s", c.Name, m.MountPath, at[m.MountPath], m.Name)
				}
				at[m.MountPath] = m.Name
			}
			for _, m := range ours.VolumeMounts {
				if at[m.MountPath] != m.Name {
					t.Errorf("container %s has %q at %s", c.Name, at[m.MountPath], m.MountPath)
				}
			}
		}
	}
	if sets != 1 || files < 1 {
		t.Errorf("%d DaemonSets and %d files of the agent are made", sets, files)
	}
}

func readYAML(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// exampleOf reads a file of deploy/examples.
func exampleOf(t *testing.T, path string, into any) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "deploy", "examples", path))
	if err == nil && into != nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return string(text)
}

// kollaVariables are those of deploy/examples/kolla-ansible.
type kollaVariables struct {
	Image   string   `json:"neutron_openvswitch_agent_image_full"`
	Volumes []string `json:"neutron_openvswitch_agent_extra_volumes"`
	Test    []string `json:"neutron_openvswitch_agent_healthcheck_test"`
}

func kollaVars(t *testing.T) (vars kollaVariables) {
	exampleOf(t, "kolla-ansible/host_vars.yml", &vars)
	return vars
}

const agentFile = "/etc/neutron/plugins/ml2/openvswitch_agent.ini"

// kollaExample adds the example's options to those that are handed over.
func kollaExample(t *testing.T, h *handed) kollaVariables {
	h.files[agentFile] += exampleOf(t, "kolla-ansible/openvswitch_agent.ini", nil)
	return kollaVars(t)
}

// volumes are the arguments for named volumes of the tool. The state is in the one that there is.
func (c *container) volumes(list []string) (args []string) {
	for _, v := range list {
		_, c.state, _ = strings.Cut(v, ":")
		args = append(args, "-v", c.name+"-state:"+c.state)
	}
	return args
}

// helmValues are those of deploy/examples/openstack-helm.
type helmValues struct {
	Images struct{ Tags map[string]string }
	Conf   struct {
		Plugins struct {
			Agent map[string]map[string]any `json:"openvswitch_agent"`
		}
	}
	Pod struct {
		Lifecycle struct {
			Upgrades struct {
				DaemonSets struct {
					Strategy string `json:"pod_replacement_strategy"`
				}
			}
		}
		Mounts struct {
			Agent struct {
				Agent struct {
					Volumes []struct {
						Name     string
						HostPath struct{ Path string }
					}
					VolumeMounts []struct{ Name, MountPath string }
				} `json:"neutron_ovs_agent"`
			} `json:"neutron_ovs_agent"`
		}
	}
}

func helmExample(t *testing.T, h *handed) (values helmValues) {
	exampleOf(t, "openstack-helm/values.yaml", &values)
	h.files[agentFile] += asINI(values.Conf.Plugins.Agent)
	return values
}

// hostPaths makes directories of the node as a kubelet does, for root alone to write to, and mounts them.
func (c *container) hostPaths(t *testing.T, values helmValues) (args []string) {
	t.Helper()
	for i, v := range values.Pod.Mounts.Agent.Agent.Volumes {
		dir := filepath.Join(c.dir, "node", v.HostPath.Path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		c.state = values.Pod.Mounts.Agent.Agent.VolumeMounts[i].MountPath
		args = append(args, "-v", dir+":"+c.state)
	}
	return args
}

// osaVariables are those of deploy/examples/openstack-ansible.
type osaVariables struct {
	Unit map[string]map[string]any `json:"neutron_openvswitch_agent_init_overrides"`
	File map[string]map[string]any `json:"neutron_openvswitch_agent_ini_overrides"`
}

func osaExample(t *testing.T, h *handed) {
	var vars osaVariables
	exampleOf(t, "openstack-ansible/host_vars.yml", &vars)
	h.files[agentFile] += asINI(vars.File)
	h.unit = map[string]string{}
	for name, value := range vars.Unit["Service"] {
		h.unit[name] = fmt.Sprint(value)
	}
}

// asINI writes options as tools do.
func asINI(sections map[string]map[string]any) (out string) {
	for section, options := range sections {
		out += "[" + section + "]\n"
		for name, value := range options {
			out += fmt.Sprintf("%s = %v\n", name, value)
		}
	}
	return out
}
