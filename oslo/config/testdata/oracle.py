# SPDX-License-Identifier: Apache-2.0
"""Answers, one JSON line per JSON line, how Python's oslo.config sees a case."""

import contextlib
import io
import json
import logging
import os
import re
import sys

from oslo_config import cfg
from oslo_config import types

BASE_ENV = {k: os.environ[k] for k in ('PATH', 'LANG', 'LC_ALL') if k in os.environ}


def make_type(t):
    kind = t['kind']
    if kind == 'string':
        return types.String(choices=t.get('choices'), regex=t.get('regex'),
                            ignore_case=t.get('ignore_case', False),
                            max_length=t.get('max_length'),
                            quotes=t.get('quotes', False))
    if kind == 'bool':
        return types.Boolean()
    if kind == 'int':
        return types.Integer(min=t.get('min'), max=t.get('max'), choices=t.get('choices'))
    if kind == 'port':
        return types.Port()
    if kind == 'float':
        return types.Float(min=t.get('min'), max=t.get('max'))
    if kind == 'list':
        return types.List(item_type=make_type(t['item']), bounds=t.get('bounds', False))
    if kind == 'dict':
        return types.Dict(value_type=make_type(t['item']), bounds=t.get('bounds', False))
    if kind == 'ip':
        return types.IPAddress(version=t.get('version'))
    if kind == 'hostname':
        return types.Hostname()
    if kind == 'hostaddress':
        return types.HostAddress(version=t.get('version'))
    if kind == 'hostdomain':
        return types.HostDomain(version=t.get('version'))
    raise AssertionError(kind)


def make_opt(o):
    kwargs = dict(default=o.get('default'), short=o.get('short'),
                  required=o.get('required', False), mutable=o.get('mutable', False),
                  deprecated_opts=[cfg.DeprecatedOpt(d['name'], group=d['group'] or None)
                                   for d in o.get('deprecated') or [] if d['name']])
    for d in o.get('deprecated') or []:
        if not d['name']:
            kwargs['deprecated_group'] = d['group']
    if o.get('multi'):
        return cfg.MultiOpt(o['name'], make_type(o['type']), **kwargs)
    if o['type']['kind'] == 'bool':
        return cfg.BoolOpt(o['name'], **kwargs)
    return cfg.Opt(o['name'], type=make_type(o['type']), **kwargs)


def encode(value):
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return {'int': str(value)}
    if isinstance(value, float):
        return {'float': repr(value)}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        return {'dict': [[k, encode(v)] for k, v in value.items()]}
    raise AssertionError(type(value))


def describe(exc):
    out = {'class': type(exc).__name__}
    if isinstance(exc, SystemExit):
        out['code'] = str(exc.code)
    if isinstance(exc, OSError):
        out['class'] = 'OSError'
    if isinstance(exc, cfg.ConfigFileParseError):
        found = re.match(r'at (.*):(\d+), ', exc.msg, re.S)
        out['file'], out['line'] = found.group(1), int(found.group(2))
    if isinstance(exc, cfg.ConfigFilesNotFoundError):
        out['files'] = exc.config_files
    if isinstance(exc, cfg.ConfigDirNotFoundError):
        out['files'] = [exc.config_dir]
    if isinstance(exc, cfg.RequiredOptError):
        out['option'] = exc.opt_name.replace('-', '_')
        out['group'] = exc.group.name if exc.group else 'DEFAULT'
    return out


def read_all(conf, opts):
    values = []
    for opt, group in opts:
        try:
            value, loc = conf._do_get(opt.dest, conf._get_group(group) if group else None)
            values.append({'value': encode(value),
                           'loc': loc.location.name if loc is not None else 'opt_default'})
        except Exception as exc:
            values.append({'error': describe(exc)})
    return values


def load(case):
    os.environ.clear()
    os.environ.update(BASE_ENV)
    os.environ.update(case['env'] or {})
    conf = cfg.ConfigOpts()
    opts = []
    for o in case['options']:
        opt, group = make_opt(o), o.get('group') or None
        conf.register_opt(opt, group=group, cli=o.get('cli', False))
        opts.append((opt, group))
    conf(case['args'] or [], project=case.get('project') or None, prog='prog',
         version='1', default_config_files=case.get('default_files'),
         default_config_dirs=case.get('default_dirs'))
    return conf, opts


class Immutable(logging.Handler):
    """Collects the options whose change was ignored."""

    def __init__(self):
        super().__init__()
        self.names = []

    def emit(self, record):
        if record.msg.startswith('Ignoring change to immutable'):
            self.names.append([record.args['group'], record.args['option']])


def main():
    cfg.LOG.propagate = False
    cfg.LOG.setLevel(logging.CRITICAL)
    logging.getLogger('oslo_config.versionutils').disabled = True
    conf, opts = None, None
    for line in sys.stdin:
        case = json.loads(line)
        answer = {}
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            try:
                if case.get('reload'):
                    handler = Immutable()
                    cfg.LOG.setLevel(logging.WARNING)
                    cfg.LOG.addHandler(handler)
                    try:
                        changed = conf.mutate_config_files()
                    finally:
                        cfg.LOG.removeHandler(handler)
                        cfg.LOG.setLevel(logging.CRITICAL)
                    answer['changed'] = sorted([g or 'DEFAULT', n.replace('-', '_')] for g, n in changed)
                    answer['ignored'] = sorted([g, n.replace('-', '_')] for g, n in handler.names)
                else:
                    conf, opts = load(case)
                answer['values'] = read_all(conf, opts)
            except (Exception, SystemExit) as exc:
                answer['error'] = describe(exc)
        sys.stdout.write(json.dumps(answer) + '\n')
        sys.stdout.flush()


main()
