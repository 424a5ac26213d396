// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// names is every option that this agent reads, by section as in a file.
func names(schema *config.Schema) map[string][]string {
	known := map[string][]string{}
	for _, o := range schema.Options() {
		id := o.ID()
		group := fileGroup(id.Group)
		known[group] = append(known[group], id.Option)
	}
	return known
}

// unknown reports the settings that this agent does not read: those of other
// programs as notes, others as warnings with a guess at what was meant. Values
// are never shown: a misspelt option may hold a secret.
func (r *Report) unknown(conf *config.Config, schema *config.Schema) {
	known := names(schema)
	reported := map[string]bool{}
	for _, s := range conf.Unknown() {
		section := fileGroup(s.Section)
		p := Problem{Group: section, Option: s.Key, Origin: s.Origin()}
		switch {
		case slices.Contains(otherSections(), section) || slices.Contains(otherOptions()[section], s.Key):
			p.Sentence = fmt.Sprintf("[%s] %s is not read by this agent.", section, s.Key)
			r.add(Note, "other", p)
		case gone(section, s.Key) != "":
			p.Sentence = fmt.Sprintf("[%s] %s was removed from Neutron and is ignored: %s.", section, s.Key, gone(section, s.Key))
			r.add(Warning, "removed", p)
		case known[section] == nil:
			// One line per section and file is enough.
			if place := s.File + "\x00" + section; !reported[place] {
				reported[place] = true
				p.Option = ""
				p.Sentence = unknownSection(s.Section, known)
				r.add(Warning, "unknown", p)
			}
		default:
			p.Sentence = unknownOption(section, s.Key, known)
			r.add(Warning, "unknown", p)
		}
	}
}

func unknownSection(section string, known map[string][]string) string {
	sentence := fmt.Sprintf("There is no section [%s], so its options are ignored", section)
	if strings.EqualFold(strings.TrimSpace(section), "default") {
		return sentence + "; did you mean [DEFAULT]? This one section must be in capitals."
	}
	var candidates []string
	for name := range known {
		candidates = append(candidates, name)
	}
	candidates = append(candidates, otherSections()...)
	slices.Sort(candidates)
	if n := Nearest(strings.TrimSpace(section), candidates); n != "" {
		return sentence + fmt.Sprintf("; did you mean [%s]?", n)
	}
	return sentence + "."
}

func unknownOption(section, key string, known map[string][]string) string {
	sentence := fmt.Sprintf("There is no option [%s] %s, so it is ignored", section, key)
	underscored := strings.ReplaceAll(key, "-", "_")
	if slices.Contains(known[section], underscored) {
		return sentence + fmt.Sprintf("; did you mean %s? Dashes are for the command line only.", underscored)
	}
	// The same name in another section beats a similar name in this one.
	var elsewhere []string
	for other, options := range known {
		if slices.Contains(options, strings.ToLower(underscored)) && other != section && !strings.HasPrefix(other, "privsep_") {
			elsewhere = append(elsewhere, "["+other+"] "+strings.ToLower(underscored))
		}
	}
	slices.Sort(elsewhere)
	if len(elsewhere) > 0 && !slices.Contains(known[section], strings.ToLower(key)) {
		return sentence + fmt.Sprintf("; did you mean %s?", strings.Join(elsewhere, " or "))
	}
	if n := Nearest(underscored, append(slices.Clone(known[section]), otherOptions()[section]...)); n != "" {
		return sentence + fmt.Sprintf("; did you mean %s?", n)
	}
	return sentence + "."
}
