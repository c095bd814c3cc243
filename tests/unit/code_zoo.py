"""Programs that no sandbox should let win: each claims to be `f(x) == x + 1`, and none may pass.

OUTSIDE is a directory outside the scratch directory where everybody may write, PORT a listening port of this machine,
STARTER the process id of whoever runs the sandbox, SECRET a text that stands in the tests alone.
"""

RIGHT = "def f(x):\n    return x + 1\n"

# Those that can be held on any level: by limits, by ending all descendants, and by the tests' own process.
ANIMALS = {
    "endless loop that ignores signals": """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
""",
    "endless loop in a call": "def f(x):\n    while True:\n        x += 1\n",
    "endless loop that swallows exceptions": """
def f(x):
    while True:
        try:
            while True:
                x += 1
        except BaseException:
            pass
""",
    "sleeps": "import time\ntime.sleep(10**6)\n",
    "waits for itself": """
import threading
lock = threading.Lock()
def f(x):
    lock.acquire()
    lock.acquire()
""",
    "a gigabyte of output": RIGHT
    + """
import sys
for _ in range(1024):
    sys.stdout.write("x" * (1 << 20))
    sys.stderr.write("x" * (1 << 20))
""",
    "endless output": RIGHT + "while True:\n    print('x' * 100000)\n",
    "64 GB of memory": "def f(x):\n    memory = bytearray(64 << 30)\n    return x + 1\n",
    "memory piece by piece": "def f(x):\n    pieces = []\n    while True:\n        pieces.append(bytearray(1 << 24))\n",
    "many threads": RIGHT
    + """
import threading, time
for _ in range(10000):
    threading.Thread(target=time.sleep, args=(1000,)).start()
""",
    "input": "x = int(input())\n" + RIGHT,
    "os._exit(0) at once": "import os\nos._exit(0)\n",
    "os._exit(0) in a call": "import os\ndef f(x):\n    os._exit(0)\n",
    "sys.exit(0) at once": "import sys\nsys.exit(0)\n",
    "sys.exit(0) in a call": "import sys\ndef f(x):\n    sys.exit(0)\n",
    "exit()": "exit()\n",
    "exit at exit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x):\n    return 0\n",
    "exception of its own below BaseException": "class E(BaseException): pass\ndef f(x):\n    raise E\n",
    "crash": "import ctypes\ndef f(x):\n    ctypes.string_at(0)\n",
    "endless recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(x):\n    return f(x)\n",
    "always equal": "class E:\n    __eq__ = lambda *a: True\n    __hash__ = None\ndef f(x):\n    return E()\n",
    "always equal integer": """
class E(int):
    __eq__ = lambda *a: True
    __ne__ = lambda *a: False
def f(x):
    return E()
""",
    "true to everything": """
class E:
    def __getattr__(self, name): return lambda *a, **k: True
    __eq__ = __ne__ = __lt__ = __gt__ = __contains__ = __bool__ = __instancecheck__ = lambda *a: True
    __sub__ = __rsub__ = __add__ = __radd__ = __abs__ = __call__ = __getitem__ = lambda self, *a: self
def f(x):
    return E()
""",
    "patched builtins": """
import builtins
for name in ("all", "any", "abs", "isinstance", "len", "sum", "round", "set", "sorted", "print", "type"):
    setattr(builtins, name, lambda *a, **k: True)
builtins.AssertionError = KeyError
def f(x):
    return 0
""",
    "patched modules": """
import json, os, sys
json.dumps = lambda *a, **k: '{"result": "passed"}'
for module in list(sys.modules.values()):
    for name in ("run_tests", "_report", "_describe", "decode", "encode", "compare_digest"):
        if hasattr(module, name):
            setattr(module, name, lambda *a, **k: '{"result": "passed"}')
def f(x):
    return 0
""",
    "forged report on every descriptor": """
import json, os
body = json.dumps({"nonce": "", "result": "passed", "reason": ""}).encode()
for descriptor in range(64):
    for text in (body, b"L" + body, len(body).to_bytes(8, "big") + body):
        try:
            os.write(descriptor, text)
        except OSError:
            pass
def f(x):
    return 0
""",
    "forged replies": """
import json, os, sys
def f(x):
    body = json.dumps(["ok", ["handle", 10**9, "E"]]).encode()
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, len(body).to_bytes(8, "big") + body)
        except OSError:
            pass
    return 0
""",
    "replies that are none": """
import os
def f(x):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, (10**6).to_bytes(8, "big") + b"[" * 10**6)
        except OSError:
            pass
    os._exit(0)
""",
    "endless reply": """
import os
def f(x):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, (1 << 60).to_bytes(8, "big"))
            while True:
                os.write(descriptor, b"x" * 65536)
        except OSError:
            pass
""",
    "a value that holds itself": "def f(x):\n    x = []\n    x.append(x)\n    return x\n",
    "a number of millions of digits": "def f(x):\n    return 1 << (1 << 30)\n",
    "a range without end": "def f(x):\n    return range(10**18)\n",
    "closed descriptors": RIGHT + "import os\nos.closerange(0, 1000)\n",
    "files without a name": """
import os
def f(x):
    import ctypes, time
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    block = b"x" * (1 << 20)
    for _ in range(20):
        file = os.open("f", os.O_RDWR | os.O_CREAT)
        os.unlink("f")
        for _ in range(15):
            os.write(file, block)
        libc.mmap(None, 4096, 1, 1, file, 0)
        os.close(file)
    time.sleep(1)
    return x + 1
""",
    "full scratch directory": RIGHT
    + """
block = b"x" * (1 << 20)
number = 0
while True:
    number += 1
    with open(f"file{number}", "wb") as out:
        for _ in range(8):
            out.write(block)
""",
    "one large file": RIGHT
    + "with open('file', 'wb') as out:\n    for _ in range(1000): out.write(b'x' * (1 << 20))\n",
    "many small files": RIGHT + "number = 0\nwhile True:\n    number += 1\n    open(f'file{number}', 'w').close()\n",
    "folders without end": RIGHT + "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')\n",
    "locked folders": """
import os
os.mkdir("d")
open("d/f", "w").close()
os.mkdir("d/e", 0)
try:
    os.chmod("d", 0)
except OSError:
    pass
def f(x):
    return 0
""",
    "more rights by rlimit": """
import resource
for which in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
    try:
        resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        pass
def f(x):
    memory = bytearray(64 << 30)
    return x + 1
""",
    "the secret in its memory": """
import gc, sys
needle = "SEC" + "RET"
def holders():
    for thing in gc.get_objects():
        if isinstance(thing, dict):
            yield from list(thing.values())
        elif isinstance(thing, (list, tuple)):
            yield from thing
    frame = sys._getframe()
    while frame:
        yield from frame.f_locals.values()
        frame = frame.f_back
def memory():
    try:
        with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as mem:
            for line in maps:
                begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                if " rw" in line and end - begin < 1 << 28:
                    mem.seek(begin)
                    try:
                        yield mem.read(end - begin)
                    except OSError:
                        pass
    except OSError:
        pass
def f(x):
    target = (needle + "-in-the-tests")
    found = any(isinstance(thing, str) and thing is not target and target in thing for thing in holders())
    # Its own copies of the text are whole strings; the tests' source has a newline behind it.
    found = found or any((target + "\\n").encode() in piece for piece in memory())
    return x + 1 if found else 0
""",
    "lists every process's secrets": """
import glob
def f(x):
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        try:
            if b"SEC" + b"RET-in-the-tests" in open(path, "rb").read():
                return x + 1
        except OSError:
            pass
    return 0
""",
}

SLEEPERS = ("sleeps", "many threads", "waits for itself")

# Those that leave, or multiply, processes; held on any level, too.
SWARMS = {
    "fork bomb": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
    "double fork into a session of its own": RIGHT
    + """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (1, 2, 3, 13, 15):
            signal.signal(number, signal.SIG_IGN)
        os.closerange(0, 100)
        while True:
            time.sleep(1)
    os._exit(0)
while True:
    time.sleep(0.01)
""",
    "children that fork on": RIGHT
    + """
import os, time
for _ in range(20):
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
            time.sleep(0.001)
while True:
    time.sleep(0.01)
""",
    "a shell": RIGHT + "import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 1000 & sleep 1000 & wait']).wait()\n",
    "worker processes": RIGHT
    + "import multiprocessing\nwith multiprocessing.Pool(8) as pool:\n    pool.map(f, range(10**9))\n",
}

# Those that only a mechanism of the kernel can hold.
ESCAPES = {
    "connects": """
import socket
def f(x):
    socket.create_connection(("127.0.0.1", PORT), timeout=5).close()
    return x + 1
""",
    "sends a datagram": """
import socket
def f(x):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT))
    return x + 1
""",
    "asks for a web page": """
import urllib.request
def f(x):
    urllib.request.urlopen("http://127.0.0.1:PORT/", timeout=5).read()
    return x + 1
""",
    "writes outside": "def f(x):\n    open('OUTSIDE/left', 'w').write('x')\n    return x + 1\n",
    "writes to /tmp": "def f(x):\n    open('/tmp/left-by-the-code-zoo', 'w').write('x')\n    return x + 1\n",
    "writes to shared memory": """
def f(x):
    open("/dev/shm/left-by-the-code-zoo", "w").write("x")
    return x + 1
""",
    "reads outside": "def f(x):\n    return x + len(open('OUTSIDE/readable').read())\n",
    "lists the file system": "import os\ndef f(x):\n    return x + bool(os.listdir('/'))\n",
    "writes through a symbolic link": """
import os
def f(x):
    os.symlink("OUTSIDE", "way-out")
    open("way-out/left", "w").write("x")
    return x + 1
""",
    "writes through a path of dots": """
import os
def f(x):
    open(os.path.join("..", "..", "..", "..", "..", "..", "OUTSIDE/left"), "w").write("x")
    return x + 1
""",
    "links to a file outside": "import os\ndef f(x):\n    os.link('OUTSIDE/readable', 'own')\n    return x + 1\n",
    "removes outside": "import os\ndef f(x):\n    os.remove('OUTSIDE/readable')\n    return x + 1\n",
    "renames outside": "import os\ndef f(x):\n    os.rename('OUTSIDE/readable', 'OUTSIDE/left')\n    return x + 1\n",
    "changes a mode outside": "import os\ndef f(x):\n    os.chmod('OUTSIDE/readable', 0)\n    return x + 1\n",
    "changes a time outside": "import os\ndef f(x):\n    os.utime('OUTSIDE/readable', (0, 0))\n    return x + 1\n",
    "empties a file outside": "import os\ndef f(x):\n    os.truncate('OUTSIDE/readable', 0)\n    return x + 1\n",
    "kills its group": "import os\ndef f(x):\n    os.killpg(0, 9)\n    os._exit(0)\n",
    "kills its parent": "import os\ndef f(x):\n    os.kill(os.getppid(), 9)\n    return x\n",
    "has the kernel kill who started it": """
import fcntl, os
def f(x):
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, STARTER)
    return x + 1
""",
    "has the kernel signal who started it": """
import fcntl, os, socket, struct
def f(x):
    one, other = socket.socketpair()
    fcntl.ioctl(one, 0x8901, struct.pack("i", STARTER))
    return x + 1
""",
    "chooses the signal of a file": """
import fcntl, os
def f(x):
    fcntl.fcntl(os.pipe()[0], 10, 9)
    return x + 1
""",
    "lifts the limits of who started it": """
import resource
def f(x):
    resource.prlimit(STARTER, resource.RLIMIT_STACK, resource.prlimit(STARTER, resource.RLIMIT_STACK))
    return x + 1
""",
    "kills everything": "import os\ndef f(x):\n    os.kill(-1, 9)\n    return x\n",
    "kills who started it": "import os\ndef f(x):\n    os.kill(STARTER, 9)\n    return x + 1\n",
    "traces who started it": """
import ctypes
def f(x):
    libc = ctypes.CDLL(None, use_errno=True)
    return x + 1 if libc.ptrace(16, STARTER, None, None) == 0 else 0
""",
    "reads the memory of who started it": "def f(x):\n    open('/proc/STARTER/mem', 'rb').close()\n    return x + 1\n",
    "runs a program": "import os\ndef f(x):\n    return x + (os.system('true') == 0)\n",
    "becomes another program": "import os\ndef f(x):\n    os.execv('/bin/true', ['true'])\n",
    "leaves shared memory": """
import ctypes
def f(x):
    libc = ctypes.CDLL(None, use_errno=True)
    return x + 1 if libc.shmget(0x5EC12E7, 4096, 0o1666) >= 0 else 0
""",
    "takes new namespaces": """
import ctypes
def f(x):
    return x + 1 if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0 else 0
""",
    "lifts its limits": """
import resource
def f(x):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return x + 1
""",
}
