"""Lists members, sends a message over the mesh and reads it, with a client generated from the description of the API."""

import base64
import sys
import time

from client import Client
from client.api.default import get_members, get_mesh_inbox, get_mesh_inbox_number, post_mesh_messages
from client.models import LetterRequest

one, two = (Client(base_url=f"http://127.0.97.{number}:7373") for number in (1, 2))
names = sorted(member.name for member in get_members.sync(client=one))
assert names == ["node1", "node2"], names

# The fuzzing before this may have sent mail of its own.
text = f"hello at {time.time()}"
letter = LetterRequest(to="node2", data_base64=base64.b64encode(text.encode()).decode())
post_mesh_messages.sync(client=one, body=letter)
for _ in range(300):
    for line in get_mesh_inbox.sync(client=two):
        payload = get_mesh_inbox_number.sync_detailed(str(line.number), client=two).content
        if payload == text.encode() and line.from_name == "node1":
            print(f"a generated client lists {names}, sends and reads mail")
            sys.exit()
    time.sleep(0.1)
sys.exit("the message did not arrive")
