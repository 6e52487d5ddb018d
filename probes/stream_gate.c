/* Which ways of holding a CUDA stream for work of other threads are right, and which hang. See docs/design/0001.
 *
 * Build: cc -O2 -pthread -o stream_gate stream_gate.c -ldl      Run: ./stream_gate FILE [FIRST]
 * FILE is a readable file of at least 256 MiB. Needs libcuda.so.1 (opened at run time), no toolkit.
 *
 * Every variant runs in a process of its own under a watchdog; one that hangs is killed and said to hang. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
typedef void *CUstream;
typedef uint64_t CUdeviceptr;
typedef void (*HostFn)(void *);

static CUresult (*Init)(unsigned), (*DriverGetVersion)(int *), (*DeviceGet)(int *, int), (*DeviceGetName)(char *, int, int),
    (*PrimaryCtxRetain)(void **, int), (*CtxSetCurrent)(void *), (*CtxSynchronize)(void),
    (*ModuleLoadData)(void **, const void *), (*ModuleGetFunction)(void **, void *, const char *),
    (*MemAlloc)(CUdeviceptr *, size_t), (*MemHostAlloc)(void **, size_t, unsigned),
    (*StreamCreate)(CUstream *, unsigned), (*StreamSynchronize)(CUstream), (*LaunchHostFunc)(CUstream, HostFn, void *),
    (*WaitValue64)(CUstream, CUdeviceptr, uint64_t, unsigned), (*MemsetD8Async)(CUdeviceptr, unsigned char, size_t, CUstream),
    (*MemcpyHtoDAsync)(CUdeviceptr, const void *, size_t, CUstream), (*MemcpyDtoH)(void *, CUdeviceptr, size_t),
    (*BeginCapture)(CUstream, int), (*IsCapturing)(CUstream, int *), (*EndCapture)(CUstream, void **),
    (*LaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static const struct { void *to; const char *name; } SYMBOLS[] = {
    {&Init, "cuInit"}, {&DriverGetVersion, "cuDriverGetVersion"}, {&DeviceGet, "cuDeviceGet"},
    {&DeviceGetName, "cuDeviceGetName"}, {&PrimaryCtxRetain, "cuDevicePrimaryCtxRetain"},
    {&CtxSetCurrent, "cuCtxSetCurrent"}, {&CtxSynchronize, "cuCtxSynchronize"}, {&ModuleLoadData, "cuModuleLoadData"},
    {&ModuleGetFunction, "cuModuleGetFunction"}, {&MemAlloc, "cuMemAlloc_v2"}, {&MemHostAlloc, "cuMemHostAlloc"},
    {&StreamCreate, "cuStreamCreate"}, {&StreamSynchronize, "cuStreamSynchronize"},
    {&LaunchHostFunc, "cuLaunchHostFunc"}, {&WaitValue64, "cuStreamWaitValue64_v2"},
    {&MemsetD8Async, "cuMemsetD8Async"}, {&MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2"}, {&MemcpyDtoH, "cuMemcpyDtoH_v2"},
    {&BeginCapture, "cuStreamBeginCapture_v2"}, {&IsCapturing, "cuStreamIsCapturing"},
    {&EndCapture, "cuStreamEndCapture"}, {&LaunchKernel, "cuLaunchKernel"},
};

/* Copies {dst, src, len}, three words that are read when it runs. One thread of a block
 * reads them for all: when each thread does, the loads of pinned memory are not merged and take 3 ms a launch. */
static const char PTX[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry copy_late(.param .u64 p)\n{\n"
    ".reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<20>; .reg .b16 %h<2>;\n"
    ".shared .align 8 .b64 s[3];\n"
    "ld.param.u64 %d0,[p]; mov.u32 %r2,%tid.x; setp.ne.u32 %p3,%r2,0; @%p3 bra READ;\n"
    "ld.volatile.global.u64 %d1,[%d0]; ld.volatile.global.u64 %d2,[%d0+8]; ld.volatile.global.u64 %d3,[%d0+16];\n"
    "st.shared.u64 [s],%d1; st.shared.u64 [s+8],%d2; st.shared.u64 [s+16],%d3;\n"
    "READ: bar.sync 0; ld.shared.u64 %d1,[s]; ld.shared.u64 %d2,[s+8]; ld.shared.u64 %d3,[s+16];\n"
    "mov.u32 %r0,%ctaid.x; mov.u32 %r1,%ntid.x; mov.u32 %r3,%nctaid.x;\n"
    "mad.lo.u32 %r4,%r0,%r1,%r2; mul.lo.u32 %r5,%r1,%r3; cvt.u64.u32 %d4,%r4; cvt.u64.u32 %d5,%r5;\n"
    "or.b64 %d6,%d1,%d2; and.b64 %d6,%d6,15; mov.u64 %d7,0; setp.ne.u64 %p0,%d6,0; @%p0 bra BYTES;\n"
    "shr.u64 %d8,%d3,4; mov.u64 %d9,%d4;\n"
    "V: setp.ge.u64 %p1,%d9,%d8; @%p1 bra VEND;\n"
    "shl.b64 %d10,%d9,4; add.u64 %d11,%d2,%d10; add.u64 %d12,%d1,%d10;\n"
    "ld.global.v2.u64 {%d13,%d14},[%d11]; st.global.v2.u64 [%d12],{%d13,%d14};\n"
    "add.u64 %d9,%d9,%d5; bra V;\n"
    "VEND: and.b64 %d7,%d3,-16;\n"
    "BYTES: add.u64 %d9,%d7,%d4;\n"
    "B: setp.ge.u64 %p2,%d9,%d3; @%p2 bra END;\n"
    "add.u64 %d11,%d2,%d9; add.u64 %d12,%d1,%d9; ld.global.u8 %h0,[%d11]; st.global.u8 [%d12],%h0;\n"
    "add.u64 %d9,%d9,%d5; bra B;\n"
    "END: ret;\n}\n";

#define MUST(call) do { CUresult r_ = (call); if (r_) { printf("%s failed: %d\n", #call, r_); fflush(stdout); _exit(2); } } while (0)

static void *context, *kernel;
static int file;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }

struct stream;
/* One hand-over: read LEN bytes at OFFSET into (or check) BLOCK, then set the stream's word to TICKET. */
struct op {
    struct stream *stream;
    char *block;
    volatile uint64_t *late; /* dst, src, len */
    CUdeviceptr device;
    size_t len, offset;
    uint64_t ticket;
    int write, stamp;
    struct op *next;
};
struct stream { CUstream handle; volatile uint64_t *word; uint64_t tickets; char *blocks; };

enum how { GATE, PRIVATE_COPY, ALLOCATES, PARKED_PRIVATE };
static enum how how;
static struct op *head, **tail = &head;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static volatile long wrong;
static CUstream private_stream[4];

static void *work(void *arg) {
    CUstream mine = private_stream[(intptr_t)arg];
    CtxSetCurrent(context);
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!head) pthread_cond_wait(&more, &lock);
        struct op *op = head;
        if (!(head = op->next)) tail = &head;
        pthread_mutex_unlock(&lock);
        if (op->write) {
            for (size_t i = 0; i < op->len; i++) wrong += (unsigned char)op->block[i] != (unsigned char)op->stamp;
        } else {
            if (pread(file, op->block, op->len, op->offset) != (ssize_t)op->len) wrong++;
            memcpy(op->block, &op->stamp, op->len < 4 ? op->len : 4);
            void *extra;
            if (how == ALLOCATES) MemHostAlloc(&extra, 1 << 20, 0);
            if (how == PRIVATE_COPY || how == PARKED_PRIVATE) {
                MemcpyHtoDAsync(op->device, op->block, op->len, mine);
                StreamSynchronize(mine);
            }
            op->late[0] = op->device; op->late[1] = (uintptr_t)op->block;
            op->late[2] = how == PRIVATE_COPY || how == PARKED_PRIVATE ? 0 : op->len;
        }
        __atomic_store_n(op->stream->word, op->ticket, __ATOMIC_RELEASE);
        if (how == PARKED_PRIVATE) { pthread_mutex_lock(&lock); pthread_cond_broadcast(&finished); pthread_mutex_unlock(&lock); }
    }
    return NULL;
}

static void hand_over(void *arg) {
    struct op *op = arg;
    pthread_mutex_lock(&lock);
    op->next = NULL; *tail = op; tail = &op->next;
    pthread_cond_signal(&more);
    if (how == PARKED_PRIVATE) while (*op->stream->word < op->ticket) pthread_cond_wait(&finished, &lock);
    pthread_mutex_unlock(&lock);
}

static void copy(CUstream stream, volatile uint64_t *late, size_t most) {
    void *p = (void *)late, *params[] = {&p};
    unsigned grid = most <= 65536 ? 1 + most / 8192 : 64;
    MUST(LaunchKernel(kernel, grid, 1, 1, 512, 1, 1, 0, stream, params, NULL));
}

static void gate(struct op *op) {
    MUST(LaunchHostFunc(op->stream->handle, hand_over, op));
    if (how != PARKED_PRIVATE) MUST(WaitValue64(op->stream->handle, (uintptr_t)op->stream->word, op->ticket, 0 /* >= */));
}

static void *pinned(size_t len) { void *p; MUST(MemHostAlloc(&p, len, 3)); memset(p, 0, len); return p; }

static void start(void) {
    int device;
    MUST(Init(0)); MUST(DeviceGet(&device, 0)); MUST(PrimaryCtxRetain(&context, device)); MUST(CtxSetCurrent(context));
    void *module;
    MUST(ModuleLoadData(&module, PTX)); MUST(ModuleGetFunction(&kernel, module, "copy_late"));
    /* A first launch may load; nothing may do so later. */
    uint64_t *late = pinned(24); copy(0, late, 1); MUST(CtxSynchronize());
    for (intptr_t i = 0; i < 4; i++) {
        pthread_t t; MUST(StreamCreate(&private_stream[i], 1)); pthread_create(&t, NULL, work, (void *)i);
    }
}

/* N operations on each of S streams: memset, gate, copy, and a kernel that saves what it finds, in turn. */
static void many(int s, int n, size_t len, int blocks, CUstream fixed, int write) {
    struct stream *streams = calloc(s, sizeof *streams);
    uint64_t *words = pinned(s * 64), *lates = pinned((size_t)s * n * 48);
    struct op *ops = calloc((size_t)s * n, sizeof *ops);
    CUdeviceptr memory, trace;
    MUST(MemAlloc(&memory, s * len)); MUST(MemAlloc(&trace, (size_t)s * n * 16));
    for (int i = 0; i < s; i++) {
        streams[i].word = words + i * 8; streams[i].blocks = pinned(blocks * len); streams[i].handle = fixed;
        if (!fixed && s > 0) MUST(StreamCreate(&streams[i].handle, i & 1));
    }
    double t = now();
    for (int k = 0; k < n; k++) for (int i = 0; i < s; i++) {
        size_t at = (size_t)i * n + k;
        struct op *op = ops + at; struct stream *st = streams + i;
        *op = (struct op){st, st->blocks + (k % blocks) * len, lates + at * 6, memory + i * len,
                          write ? len : len - at % 100, (at % 64) * 4096, ++st->tickets, write, write ? (int)(at % 251) : (int)at, 0};
        MUST(MemsetD8Async(op->device, write ? op->stamp : 0xee, len, st->handle));
        if (write) {
            op->late[0] = (uintptr_t)op->block; op->late[1] = op->device; op->late[2] = len;
            copy(st->handle, op->late, len); gate(op);
        } else {
            gate(op); copy(st->handle, op->late, len);
            uint64_t *after = lates + at * 6 + 3;
            after[0] = trace + at * 16; after[1] = op->device; after[2] = 4;
            copy(st->handle, after, 4);
        }
    }
    double submitted = now();
    for (int i = 0; i < s; i++) MUST(StreamSynchronize(streams[i].handle));
    double done = now();
    if (!write) {
        char *seen = malloc((size_t)s * n * 16);
        MUST(MemcpyDtoH(seen, trace, (size_t)s * n * 16));
        for (int at = 0; at < s * n; at++) { int stamp; memcpy(&stamp, seen + at * 16, 4); wrong += stamp != at; }
    }
    printf("%s, %d x %d, %.1f us each (%.1f to submit)", wrong ? "WRONG" : "right", s, n, (done - t) / s / n * 1e6, (submitted - t) / s / n * 1e6);
}

/* One large read, in pieces through two Blocks; on the kernel or (fixed) on the copy engine. */
static void large(size_t total, size_t piece, int fixed) {
    struct stream st = {0, pinned(8), 0, pinned(2 * piece)};
    CUdeviceptr memory; MUST(MemAlloc(&memory, total)); MUST(StreamCreate(&st.handle, 1));
    int n = total / piece;
    struct op *ops = calloc(n, sizeof *ops); uint64_t *lates = pinned(n * 24);
    double best = 1e9;
    for (int round = 0; round < 4; round++) {
        double t = now();
        for (int k = 0; k < n; k++) {
            ops[k] = (struct op){&st, st.blocks + (k & 1) * piece, lates + k * 3, memory + k * piece, piece, k * piece, ++st.tickets, 0, k, 0};
            gate(&ops[k]);
            if (fixed) MUST(MemcpyHtoDAsync(ops[k].device, ops[k].block, piece, st.handle)); else copy(st.handle, ops[k].late, piece);
        }
        MUST(StreamSynchronize(st.handle));
        if (now() - t < best) best = now() - t;
    }
    for (int k = 0; k < n; k++) { int stamp; MUST(MemcpyDtoH(&stamp, memory + k * piece, 4)); wrong += stamp != k; }
    /* The copy alone, without files. */
    volatile uint64_t *late = (volatile uint64_t *)lates; late[0] = memory; late[1] = (uintptr_t)st.blocks; late[2] = piece;
    double t = now();
    for (int k = 0; k < 64; k++) if (fixed) MUST(MemcpyHtoDAsync(memory, st.blocks, piece, st.handle)); else copy(st.handle, late, piece);
    MUST(StreamSynchronize(st.handle));
    printf("%s, %zu MiB in %d pieces: %.1f GB/s; the copy alone %.1f GB/s", wrong ? "WRONG" : "right", total >> 20, n, total / best / 1e9, 64.0 * piece / (now() - t) / 1e9);
}

static void *per_thread(void *arg) { (void)arg; CtxSetCurrent(context); many(1, 300, 4096, 1, (CUstream)2, 0); printf("; "); return NULL; }

static void latency(void) {
    struct stream st = {0, pinned(8), 0, pinned(4096)};
    CUdeviceptr memory; MUST(MemAlloc(&memory, 4096)); MUST(StreamCreate(&st.handle, 1));
    uint64_t *late = pinned(24); double t = now(); int n = 2000;
    for (int k = 0; k < n; k++) {
        struct op op = {&st, st.blocks, late, memory, 4096, 0, ++st.tickets, 0, k, 0};
        gate(&op); copy(st.handle, late, 4096); MUST(StreamSynchronize(st.handle));
    }
    printf("right, %.1f us for one 4 KiB operation waited for", (now() - t) / n * 1e6);
}

static void nothing(void *arg) { (void)arg; }
static void capture(void) {
    CUstream s; int status = -1, before = -1; void *graph = NULL;
    MUST(StreamCreate(&s, 1)); MUST(IsCapturing(s, &before)); MUST(BeginCapture(s, 2)); MUST(IsCapturing(s, &status));
    uint64_t *word = pinned(8);
    CUresult host = LaunchHostFunc(s, nothing, NULL), wait = WaitValue64(s, (uintptr_t)word, 1, 0);
    CUresult end = EndCapture(s, &graph);
    printf("%s: state %d before, %d while capturing; captured host function -> %d, wait value -> %d, end -> %d",
           before == 0 && status == 1 ? "right" : "WRONG", before, status, host, wait, end);
}

static void run(int v) {
    start();
    switch (v) {
    case 0: many(1, 1000, 4096, 1, 0, 0); break;
    case 1: many(8, 1000, 4096, 1, 0, 0); break;
    case 2: many(64, 1000, 4096, 1, 0, 0); break;
    case 3: many(64, 1000, 4096, 2, 0, 0); break;
    case 4: many(64, 1000, 4096, 1, 0, 1); break;
    case 5: many(1, 600, 4096, 1, (CUstream)1, 0); break;
    case 6: { pthread_t t[4]; for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, per_thread, NULL); for (int i = 0; i < 4; i++) pthread_join(t[i], NULL); break; }
    case 7: many(16, 50, 1 << 20, 2, 0, 0); break;
    case 8: large(256 << 20, 1 << 20, 0); break;
    case 9: large(256 << 20, 1 << 20, 1); break;
    case 10: large(256 << 20, 4 << 20, 0); break;
    case 11: large(256 << 20, 4 << 20, 1); break;
    case 12: latency(); break;
    case 13: capture(); break;
    case 14: how = PRIVATE_COPY; many(2, 50, 4096, 1, 0, 0); break;
    case 15: how = PRIVATE_COPY; many(16, 50, 4096, 1, 0, 0); break;
    case 16: how = PRIVATE_COPY; many(1, 50, 4096, 1, (CUstream)1, 0); break;
    case 17: how = PARKED_PRIVATE; many(16, 50, 4096, 1, 0, 0); break;
    case 18: how = ALLOCATES; many(2, 50, 4096, 1, 0, 0); break;
    }
}

static const char *NAMES[] = {
    "gate, 1 stream", "gate, 8 streams", "gate, 64 streams, one Block each", "gate, 64 streams, two Blocks each", "gate, writes, 64 streams",
    "gate, legacy default stream", "gate, per-thread default streams of 4 threads", "gate, 16 streams, 1 MiB",
    "large, 1 MiB pieces, kernel", "large, 1 MiB pieces, copy engine", "large, 4 MiB pieces, kernel", "large, 4 MiB pieces, copy engine",
    "latency in order", "capture", "CONTROL private copy stream, 2 streams", "CONTROL private copy stream, 16 streams",
    "CONTROL private copy stream, legacy stream", "CONTROL parked host function, private copy, 16 streams",
    "CONTROL worker pins memory in the gate, 2 streams",
};

int main(int argc, char **argv) {
    const int first = argc > 2 ? atoi(argv[2]) : 0;
    if (argc < 2 || (file = open(argv[1], O_RDONLY)) < 0) { fprintf(stderr, "usage: %s FILE\n", argv[0]); return 2; }
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    for (int v = -1; v < (int)(sizeof NAMES / sizeof *NAMES); v++) {
        if (v >= 0 && v < first) continue;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
            if (!cuda) { printf("SKIP: %s\n", dlerror()); fflush(stdout); _exit(3); }
            for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++)
                if (!(*(void **)SYMBOLS[i].to = dlsym(cuda, SYMBOLS[i].name))) { printf("no %s\n", SYMBOLS[i].name); fflush(stdout); _exit(2); }
            if (v < 0) {
                char name[64] = ""; int version = 0;
                MUST(Init(0)); MUST(DriverGetVersion(&version)); MUST(DeviceGetName(name, 64, 0));
                printf("%s, CUDA driver API %d.%d\n", name, version / 1000, version % 1000 / 10);
            } else { printf("%-52s ", NAMES[v]); fflush(stdout); run(v); printf("\n"); }
            fflush(stdout); _exit(0);
        }
        int status = 0, waited = 0;
        double limit = now() + 10;
        while (!(waited = waitpid(pid, &status, WNOHANG)) && now() < limit) usleep(10000);
        if (!waited) { kill(pid, SIGKILL); waitpid(pid, &status, 0); printf("HANGS (killed after 10 s)\n"); }
        else if (WIFSIGNALED(status)) printf("died of signal %d\n", WTERMSIG(status));
        if (v < 0 && status) return 1;
    }
    return 0;
}
