# SPDX-License-Identifier: Apache-2.0
"""The other side of the interoperability tests: a small program on Python's oslo.messaging.

peer.py server URL TOPIC HOST      serves until its standard input ends
peer.py client URL                 runs the JSON commands on its standard input, one per line
peer.py both URL TOPIC HOST        server and client in one
peer.py bench URL TOPIC N THREADS  makes N calls and prints seconds, CPU seconds
peer.py parse                      parses the transport URLs on its standard input, one JSON string per line

CONTROL_EXCHANGE in the environment names the control exchange.
"""
import json
import logging
import os
import sys
import threading
import time
import warnings

warnings.simplefilter('ignore')

import oslo_messaging  # noqa: E402
from oslo_config import cfg  # noqa: E402

logging.basicConfig(stream=sys.stderr, level=logging.CRITICAL)


def transport(url):
    oslo_messaging.set_transport_defaults(os.environ.get('CONTROL_EXCHANGE', 'neutron'))
    # RPC clients insist on options that are only registered here.
    conf = cfg.CONF
    conf([], project='peer', default_config_files=[], default_config_dirs=[])
    t = oslo_messaging.get_rpc_transport(
        conf, url, allowed_remote_exmods=['oslo_messaging.rpc.dispatcher'])
    return conf, t


def say(value):
    sys.stdout.write(json.dumps(value) + '\n')
    sys.stdout.flush()


class Endpoint(object):
    target = oslo_messaging.Target(version='1.9')

    def __init__(self):
        self.notes = []

    def echo(self, ctxt, value=None):
        return value

    def size(self, ctxt, value):
        return len(value)

    def make(self, ctxt, size):
        return 'x' * size

    def context(self, ctxt):
        return ctxt

    def fail(self, ctxt, text):
        raise ValueError(text)

    def slow(self, ctxt, seconds):
        time.sleep(seconds)
        return True

    def note(self, ctxt, text):
        self.notes.append(text)

    def read_notes(self, ctxt):
        return self.notes


class Spaced(Endpoint):
    target = oslo_messaging.Target(version='1.0', namespace='space')

    def echo(self, ctxt, value=None):
        return ['space', value]


def start(t, topic, host):
    s = oslo_messaging.get_rpc_server(
        t, oslo_messaging.Target(topic=topic, server=host),
        [Endpoint(), Spaced()], executor='threading',
        access_policy=oslo_messaging.DefaultRPCAccessPolicy)
    s.start()
    return s


def server(url, topic, host):
    conf, t = transport(url)
    start(t, topic, host)
    say('ready')
    sys.stdin.read()
    os._exit(0)  # an orderly stop takes seconds


def both(url, topic, host):
    conf, t = transport(url)
    start(t, topic, host)
    commands(t)
    os._exit(0)


def outcome(f):
    try:
        return {'result': f()}
    except Exception as e:  # the test wants every kind
        return {'error': type(e).__name__, 'text': str(e)}


def client(url):
    conf, t = transport(url)
    commands(t)
    t.cleanup()


def commands(t):
    say('ready')
    for line in sys.stdin:
        c = json.loads(line)
        target = oslo_messaging.Target(
            topic=c['topic'], server=c.get('server'), fanout=c.get('fanout'),
            version=c.get('version', '1.0'), namespace=c.get('namespace'))
        rpc = oslo_messaging.RPCClient(t, target, timeout=c.get('timeout', 20))
        ctxt = c.get('context', {})
        args = c.get('args') or {}
        if c['op'] == 'call':
            say(outcome(lambda: rpc.call(ctxt, c['method'], **args)))
        elif c['op'] == 'cast':
            say(outcome(lambda: rpc.cast(ctxt, c['method'], **args)))
        elif c['op'] == 'burst':
            say(burst(rpc, c['method'], c['n']))


def burst(rpc, method, n):
    """n calls, all in flight before the first may return."""
    results = [None] * n

    def one(i):
        results[i] = outcome(lambda: rpc.call({}, method, value=i))

    threading.stack_size(256 * 1024)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    return {'right': sum(1 for i, r in enumerate(results) if r.get('result') == i),
            'wrong': [r for i, r in enumerate(results) if r.get('result') != i][:3]}


def bench(url, topic, n, workers):
    conf, t = transport(url)
    rpc = oslo_messaging.RPCClient(
        t, oslo_messaging.Target(topic=topic, version='1.0'), timeout=60)
    payload = {'value': {'port': 'x' * 200, 'list': list(range(20))}}
    rpc.call({}, 'echo', **payload)
    todo = [n]
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                if todo[0] == 0:
                    return
                todo[0] -= 1
            rpc.call({'is_admin': True, 'request_id': 'req-x'}, 'echo', **payload)

    wall, cpu = time.time(), time.process_time()
    threads = [threading.Thread(target=work) for _ in range(workers)]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    say({'seconds': time.time() - wall, 'cpu': time.process_time() - cpu})


def parse():
    from kombu.utils.url import parse_url
    from oslo_messaging._drivers import impl_rabbit
    conf = cfg.ConfigOpts()
    conf([], project='peer', default_config_files=[], default_config_dirs=[])

    class Self(object):
        def _parse_url_hostname(self, hostname):
            return impl_rabbit.Connection._parse_url_hostname(self, hostname)

    def effective(u, h, **defaults):
        try:
            k = parse_url(impl_rabbit.Connection._transform_transport_url(Self(), u, h, **defaults))
        except Exception as e:
            return {'broken': str(e)}
        return {'host': k['hostname'], 'port': k['port'], 'user': k['userid'] or 'guest',
                'password': k['password'] or 'guest', 'vhost': k['virtual_host'] or '/'}

    def one(text):
        u = oslo_messaging.TransportURL.parse(conf, text)
        hosts = u.hosts
        if hosts:
            use = [effective(u, h) for h in hosts]
        else:
            use = [effective(u, oslo_messaging.TransportHost(''), default_username='guest',
                             default_password='guest', default_hostname='localhost')]
        return {
            'transport': u.transport, 'vhost': u.virtual_host or '', 'query': u.query,
            'hosts': [[h.hostname or '', h.port or 0, h.username or '', h.password or ''] for h in hosts],
            'effective': use,
        }

    for line in sys.stdin:
        say(outcome(lambda: one(json.loads(line))))


if __name__ == '__main__':
    kind, args = sys.argv[1], sys.argv[2:]
    if kind == 'bench':
        bench(args[0], args[1], int(args[2]), int(args[3]))
    else:
        {'server': server, 'client': client, 'both': both, 'parse': parse}[kind](*args)
