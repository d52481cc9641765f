"""A grid without a network, which passes messages to real client apps in this process.

As in Flower, a reply is pulled once, by the id of the message that it answers.
"""

import itertools

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # Flower sets these when it starts an app


class Loopback(Grid):
    """A grid whose nodes run an app each; ``nodes`` maps node ids to client numbers."""

    def __init__(self, nodes, app):
        self.nodes, self.app = dict(nodes), app
        self.sent = []  # all messages, in order
        self.pulled = 0
        self._names = (f"message {number}" for number in itertools.count())
        self._waiting = {}

    def context(self, node):
        return Context(1, node, {"partition-id": self.nodes[node]}, RecordDict(), {})

    def reply(self, message):
        """Return the reply of a node, or None if there is none yet."""
        node = message.metadata.dst_node_id
        try:
            return self.app(message, self.context(node))
        except Exception as error:
            return Message(Error(code=2, reason=str(error)), reply_to=message)

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        names = []
        for message in messages:
            name = next(self._names)
            message.metadata.__dict__["_message_id"] = name
            self._waiting[name] = message
            self.sent.append(message)
            names.append(name)
        return names

    def pull_messages(self, message_ids):
        found = []
        for name in message_ids:
            self.pulled += 1
            reply = self.reply(self._waiting[name]) if name in self._waiting else None
            if reply is not None:
                del self._waiting[name]
                found.append(reply)
        return found

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def trained(self):
        """Return the clients that were asked to train, one list per round."""
        found = {}
        for message in self.sent:
            if message.metadata.message_type == "train":
                done = message.content["config"]["rounds-done"]
                found.setdefault(done, []).append(self.nodes[message.metadata.dst_node_id])
        return found

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        raise NotImplementedError
