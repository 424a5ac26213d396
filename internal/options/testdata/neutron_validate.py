# SPDX-License-Identifier: Apache-2.0
"""Says of each question, a JSON list on standard input, what Neutron makes of the value, or null when it refuses it."""

import json
import sys

from neutron_lib.api import validators
from neutron_lib.placement import utils as place_utils
from neutron_lib.utils import helpers


def mac(value):
    if validators.validate_regex(value, validators.MAC_PATTERN):
        raise ValueError()
    return value


KINDS = {
    'mappings': helpers.parse_mappings,
    'bandwidths': place_utils.parse_rp_bandwidths,
    'without': lambda v: place_utils.parse_rp_pp_without_direction(v, 'this-host'),
    'with': lambda v: place_utils.parse_rp_pp_with_direction(v, 'this-host'),
    'inventory': place_utils.parse_rp_inventory_defaults,
    'mac': mac,
}

answers = []
for question in json.load(sys.stdin):
    try:
        answers.append({'value': KINDS[question['kind']](question['value'])})
    except ValueError:
        answers.append(None)
json.dump(answers, sys.stdout)
