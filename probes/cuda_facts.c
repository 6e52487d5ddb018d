/* What CUDA does where its documentation leaves room, and how fast a kernel copies. See docs/devices.md.
 *
 * Build: cc -O2 -pthread -o cuda_facts cuda_facts.c -ldl      Run: ./cuda_facts
 * Needs libcuda.so.1 (opened at run time), no toolkit. Each fact is told by a process of its own under a watchdog. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
typedef void *CUstream, *CUevent, *CUcontext;
typedef uint64_t CUdeviceptr;
/* CUmemAllocationProp and CUmemAccessDesc, of devices. */
typedef struct { int type, handle_types, location_type, location_id; void *win32; unsigned char flags[8]; } Prop;
typedef struct { int location_type, location_id, flags; } Access;

static CUresult (*Init)(unsigned), (*PrimaryCtxRetain)(CUcontext *, int), (*CtxSetCurrent)(CUcontext),
    (*CtxCreate)(CUcontext *, unsigned, int), (*CtxGetCurrent)(CUcontext *), (*MemAlloc)(CUdeviceptr *, size_t),
    (*MemFree)(CUdeviceptr), (*MemAllocManaged)(CUdeviceptr *, size_t, unsigned), (*MemAllocAsync)(CUdeviceptr *, size_t, CUstream),
    (*MemHostAlloc)(void **, size_t, unsigned), (*MemHostRegister)(void *, size_t, unsigned),
    (*AddressReserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long),
    (*MemCreate)(unsigned long long *, size_t, const Prop *, unsigned long long),
    (*MemMap)(CUdeviceptr, size_t, size_t, unsigned long long, unsigned long long),
    (*MemSetAccess)(CUdeviceptr, size_t, const Access *, size_t),
    (*PointerGetAttributes)(unsigned, int *, void **, CUdeviceptr), (*MemcpyHtoD)(CUdeviceptr, const void *, size_t),
    (*MemcpyDtoH)(void *, CUdeviceptr, size_t), (*MemcpyHtoDAsync)(CUdeviceptr, const void *, size_t, CUstream),
    (*StreamCreate)(CUstream *, unsigned), (*StreamSynchronize)(CUstream), (*StreamQuery)(CUstream),
    (*StreamGetCtx)(CUstream, CUcontext *), (*StreamDestroy)(CUstream), (*WaitValue64)(CUstream, CUdeviceptr, uint64_t, unsigned),
    (*WaitEvent)(CUstream, CUevent, unsigned), (*EventCreate)(CUevent *, unsigned), (*EventRecord)(CUevent, CUstream),
    (*BeginCapture)(CUstream, int), (*IsCapturing)(CUstream, int *), (*EndCapture)(CUstream, void **),
    (*ExchangeMode)(int *), (*LaunchHostFunc)(CUstream, void (*)(void *), void *), (*ModuleLoadData)(void **, const void *), (*ModuleGetFunction)(void **, void *, const char *),
    (*LaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static const struct { void *to; const char *name; } SYMBOLS[] = {
    {&Init, "cuInit"}, {&PrimaryCtxRetain, "cuDevicePrimaryCtxRetain"}, {&CtxSetCurrent, "cuCtxSetCurrent"},
    {&CtxCreate, "cuCtxCreate_v2"}, {&CtxGetCurrent, "cuCtxGetCurrent"}, {&MemAlloc, "cuMemAlloc_v2"}, {&MemFree, "cuMemFree_v2"},
    {&MemAllocManaged, "cuMemAllocManaged"}, {&MemAllocAsync, "cuMemAllocAsync"}, {&MemHostAlloc, "cuMemHostAlloc"},
    {&MemHostRegister, "cuMemHostRegister_v2"}, {&AddressReserve, "cuMemAddressReserve"}, {&MemCreate, "cuMemCreate"},
    {&MemMap, "cuMemMap"}, {&MemSetAccess, "cuMemSetAccess"}, {&PointerGetAttributes, "cuPointerGetAttributes"},
    {&MemcpyHtoD, "cuMemcpyHtoD_v2"}, {&MemcpyDtoH, "cuMemcpyDtoH_v2"}, {&MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2"},
    {&StreamCreate, "cuStreamCreate"}, {&StreamSynchronize, "cuStreamSynchronize"}, {&StreamQuery, "cuStreamQuery"},
    {&StreamGetCtx, "cuStreamGetCtx"}, {&StreamDestroy, "cuStreamDestroy_v2"}, {&WaitValue64, "cuStreamWaitValue64_v2"},
    {&WaitEvent, "cuStreamWaitEvent"}, {&EventCreate, "cuEventCreate"}, {&EventRecord, "cuEventRecord"},
    {&BeginCapture, "cuStreamBeginCapture_v2"}, {&IsCapturing, "cuStreamIsCapturing"}, {&EndCapture, "cuStreamEndCapture"},
    {&ExchangeMode, "cuThreadExchangeStreamCaptureMode"},
    {&LaunchHostFunc, "cuLaunchHostFunc"}, {&ModuleLoadData, "cuModuleLoadData"},
    {&ModuleGetFunction, "cuModuleGetFunction"}, {&LaunchKernel, "cuLaunchKernel"},
};

#define MUST(call) do { CUresult r_ = (call); if (r_) { printf("%s failed: %d\n", #call, r_); fflush(stdout); _exit(2); } } while (0)

static CUcontext context;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void start(void) { MUST(Init(0)); MUST(PrimaryCtxRetain(&context, 0)); MUST(CtxSetCurrent(context)); }
static void *pinned(size_t len) { void *p; MUST(MemHostAlloc(&p, len, 3)); memset(p, 0, len); return p; }

static void facts(const char *what, CUdeviceptr at, CUdeviceptr base, size_t len) {
    unsigned type = 0; int ordinal = -9; uint64_t managed = 0, id = 0, start = 0; size_t size = 0; CUcontext owner = NULL; unsigned char mapped = 9;
    int names[] = {2, 9, 8, 7, 11, 12, 1, 13};
    void *places[] = {&type, &ordinal, &managed, &id, &start, &size, &owner, &mapped};
    CUresult r = PointerGetAttributes(8, names, places, at);
    printf("    %-34s -> %d: type %u, device %d, managed %llx, id %llu, begins at base%+lld, %zu bytes (of %zu), mapped %d, context %s\n",
           what, r, type, ordinal, (unsigned long long)managed, (unsigned long long)id, (long long)(start - base), size, len, mapped,
           !owner ? "none" : owner == context ? "primary" : "another");
}

static void pointers(void) {
    start();
    printf("\n");
    CUdeviceptr p, q; CUstream s; void *h; CUcontext own;
    MUST(MemAlloc(&p, 100000)); facts("cuMemAlloc, in the middle", p + 4096, p, 100000);
    MUST(MemFree(p)); facts("the same, freed", p + 4096, p, 0);
    MUST(MemAlloc(&q, 100000)); facts(q == p ? "the same address again" : "another address", q, q, 100000);
    MUST(MemAllocManaged(&p, 100000, 1)); facts("cuMemAllocManaged", p, p, 100000);
    MUST(StreamCreate(&s, 1)); MUST(MemAllocAsync(&p, 100000, s)); MUST(StreamSynchronize(s)); facts("cuMemAllocAsync (pool)", p + 5, p, 100000);
    h = pinned(8192); facts("cuMemHostAlloc", (CUdeviceptr)h, (CUdeviceptr)h, 8192);
    h = mmap(NULL, 1 << 21, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(h, 1, 1 << 21);
    facts("plain memory", (CUdeviceptr)h, (CUdeviceptr)h, 1 << 21);
    MUST(MemHostRegister(h, 1 << 21, 1)); facts("cuMemHostRegister", (CUdeviceptr)h, (CUdeviceptr)h, 1 << 21);
    Prop prop = {1, 0, 1, 0, NULL, {0}}; Access access = {1, 0, 3}; unsigned long long a, b; const size_t unit = 2 << 20;
    MUST(AddressReserve(&p, 8 * unit, 0, 0, 0)); MUST(MemCreate(&a, unit, &prop, 0)); MUST(MemCreate(&b, 2 * unit, &prop, 0));
    facts("cuMemAddressReserve, not mapped", p, p, 8 * unit);
    MUST(MemMap(p, unit, 0, a, 0)); MUST(MemMap(p + unit, 2 * unit, 0, b, 0)); MUST(MemSetAccess(p, 3 * unit, &access, 1));
    facts("cuMemMap, first of two mappings", p + 7, p, unit); facts("cuMemMap, second", p + unit + 7, p, 2 * unit); facts("the same, not mapped", p + 4 * unit, p, 8 * unit);
    char *bytes = malloc(3 * unit); memset(bytes, 5, 3 * unit);
    printf("    copy over both mappings -> %d, beyond them -> %d\n", MemcpyHtoD(p + 1, bytes, 3 * unit - 1), MemcpyHtoD(p + 1, bytes, 3 * unit));
    MUST(CtxSetCurrent(NULL)); facts("no context is current", q, q, 100000);
    MUST(CtxCreate(&own, 0, 0)); MUST(MemAlloc(&p, 8192)); facts("memory of a context of its own", p, p, 8192);
    MUST(CtxSetCurrent(context));
    printf("    copy to that from the primary context -> %d\n", MemcpyHtoD(p, bytes, 8192));
    MUST(CtxSetCurrent(NULL));
    CUcontext of = NULL; CUresult r = StreamGetCtx(s, &of); printf("    cuStreamGetCtx of a stream, no context current -> %d (%s)\n", r, of == context ? "primary" : "other");
    r = StreamGetCtx(NULL, &of); printf("    cuStreamGetCtx of the default stream, no context current -> %d\n", r);
    printf("    cuStreamDestroy, no context current -> %d\n", StreamDestroy(s));
}

/* What the default stream's functions say and wait for while a blocking stream is held. */
static volatile uint64_t *word;
static void *release(void *arg) { usleep(200000); __atomic_store_n((uint64_t *)word, 1, __ATOMIC_RELEASE); return arg; }
static void ordered(int flags) {
    start();
    CUstream held, own; CUdeviceptr p; CUevent event; pthread_t t; char *from = pinned(4096);
    word = pinned(64); MUST(MemAlloc(&p, 1 << 20)); MUST(StreamCreate(&held, flags)); MUST(StreamCreate(&own, 1)); MUST(EventCreate(&event, 2));
    MUST(WaitValue64(held, (CUdeviceptr)word, 1, 0));
    printf("query of the default stream -> %d; ", StreamQuery(NULL));
    MUST(EventRecord(event, NULL)); MUST(WaitEvent(own, event, 0)); MUST(MemcpyHtoDAsync(p, from, 4096, own));
    usleep(20000); printf("a stream behind the default stream's event -> %d; ", StreamQuery(own));
    pthread_create(&t, NULL, release, NULL);
    double a = now(); MUST(MemcpyHtoD(p, from, 4096));
    printf("cuMemcpyHtoD took %.0f ms", (now() - a) * 1e3);
}
static void blocking_held(void) { ordered(0); }
static void free_held(void) { ordered(1); }

static void captures(void) {
    start();
    printf("\n");
    CUdeviceptr p; char *from = pinned(4096); MUST(MemAlloc(&p, 4096)); CUevent event; MUST(EventCreate(&event, 2)); CUstream own; MUST(StreamCreate(&own, 1));
    for (int flags = 1; flags >= 0; flags--) for (int what = 0; what < 5; what++) {
        CUstream s; void *graph = NULL; int mode = 2, state = -1; CUdeviceptr q; MUST(StreamCreate(&s, flags));
        MUST(BeginCapture(s, 0)); MUST(ExchangeMode(&mode));
        CUresult asked = IsCapturing(NULL, &state), r = 0;
        const char *names[] = {"nothing", "cuMemcpyHtoD", "an event on the default stream", "cuMemAlloc", "a copy on a stream of its own, waited for"};
        if (what == 1) r = MemcpyHtoD(p, from, 4096);
        if (what == 2) r = EventRecord(event, NULL);
        if (what == 3) r = MemAlloc(&q, 4096);
        if (what == 4) { r = MemcpyHtoDAsync(p, from, 4096, own); if (!r) r = StreamSynchronize(own); }
        MUST(ExchangeMode(&mode));
        CUresult end = EndCapture(s, &graph);
        printf("    a %s stream is captured, global mode; a relaxed thread: the default stream captures -> %d (%d); %s -> %d; the capture ends with %d\n",
               flags ? "non-blocking" : "blocking", asked, state, names[what], r, end);
    }
}

static const char PTX[] =
    ".version 6.4\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry hipfile_copy_late(.param .u64 late)\n"
    "{\n"
    ".reg .pred %p<8>;\n"
    ".reg .b16 %h<2>;\n"
    ".reg .b32 %r<8>;\n"
    ".reg .b64 %d<32>;\n"
    ".shared .align 8 .b64 words[3];\n"
    "ld.param.u64 %d0, [late];\n"
    "mov.u32 %r2, %tid.x;\n"
    "setp.ne.u32 %p0, %r2, 0;\n"
    "@%p0 bra KNOWN;\n"
    "ld.volatile.global.u64 %d1, [%d0];\n"
    "ld.volatile.global.u64 %d2, [%d0+8];\n"
    "ld.volatile.global.u64 %d3, [%d0+16];\n"
    "st.shared.u64 [words], %d1;\n"
    "st.shared.u64 [words+8], %d2;\n"
    "st.shared.u64 [words+16], %d3;\n"
    "KNOWN:\n"
    "bar.sync 0;\n"
    "ld.shared.u64 %d1, [words];\n"
    "ld.shared.u64 %d2, [words+8];\n"
    "ld.shared.u64 %d3, [words+16];\n"
    "mov.u32 %r0, %ctaid.x;\n"
    "mov.u32 %r1, %ntid.x;\n"
    "mov.u32 %r3, %nctaid.x;\n"
    "mad.lo.u32 %r4, %r0, %r1, %r2;\n"
    "mul.lo.u32 %r5, %r1, %r3;\n"
    "cvt.u64.u32 %d4, %r4;\n"
    "cvt.u64.u32 %d5, %r5;\n"
    "mov.u64 %d7, 0;\n"
    "or.b64 %d6, %d1, %d2;\n"
    "and.b64 %d6, %d6, 15;\n"
    "setp.ne.u64 %p1, %d6, 0;\n"
    "@%p1 bra BYTES;\n"
    "shr.u64 %d8, %d3, 4;\n"
    "and.b64 %d7, %d3, -16;\n"
    "mov.u64 %d9, %d4;\n"
    "shl.b64 %d15, %d5, 2;\n"
    "shl.b64 %d16, %d5, 4;\n"
    "FOUR:\n"
    "mad.lo.u64 %d17, %d5, 3, %d9;\n"
    "setp.ge.u64 %p2, %d17, %d8;\n"
    "@%p2 bra ONE;\n"
    "shl.b64 %d10, %d9, 4;\n"
    "add.u64 %d11, %d2, %d10;\n"
    "add.u64 %d12, %d1, %d10;\n"
    "ld.global.v2.u64 {%d18, %d19}, [%d11];\n"
    "add.u64 %d11, %d11, %d16;\n"
    "ld.global.v2.u64 {%d20, %d21}, [%d11];\n"
    "add.u64 %d11, %d11, %d16;\n"
    "ld.global.v2.u64 {%d22, %d23}, [%d11];\n"
    "add.u64 %d11, %d11, %d16;\n"
    "ld.global.v2.u64 {%d24, %d25}, [%d11];\n"
    "st.global.v2.u64 [%d12], {%d18, %d19};\n"
    "add.u64 %d12, %d12, %d16;\n"
    "st.global.v2.u64 [%d12], {%d20, %d21};\n"
    "add.u64 %d12, %d12, %d16;\n"
    "st.global.v2.u64 [%d12], {%d22, %d23};\n"
    "add.u64 %d12, %d12, %d16;\n"
    "st.global.v2.u64 [%d12], {%d24, %d25};\n"
    "add.u64 %d9, %d9, %d15;\n"
    "bra FOUR;\n"
    "ONE:\n"
    "setp.ge.u64 %p3, %d9, %d8;\n"
    "@%p3 bra BYTES;\n"
    "shl.b64 %d10, %d9, 4;\n"
    "add.u64 %d11, %d2, %d10;\n"
    "add.u64 %d12, %d1, %d10;\n"
    "ld.global.v2.u64 {%d18, %d19}, [%d11];\n"
    "st.global.v2.u64 [%d12], {%d18, %d19};\n"
    "add.u64 %d9, %d9, %d5;\n"
    "bra ONE;\n"
    "BYTES:\n"
    "add.u64 %d9, %d7, %d4;\n"
    "BYTE:\n"
    "setp.ge.u64 %p4, %d9, %d3;\n"
    "@%p4 bra END;\n"
    "add.u64 %d11, %d2, %d9;\n"
    "add.u64 %d12, %d1, %d9;\n"
    "ld.global.u8 %h0, [%d11];\n"
    "st.global.u8 [%d12], %h0;\n"
    "add.u64 %d9, %d9, %d5;\n"
    "bra BYTE;\n"
    "END:\n"
    "ret;\n"
    "}\n";

/* The kernel with its words read in another way: not volatile; from a line of its own for each group. */
static void *kernel_that(int plain, int own_lines) {
    char *text = malloc(sizeof PTX + 256), *at;
    strcpy(text, PTX);
    while (plain && (at = strstr(text, "ld.volatile.global.u64"))) memcpy(at, "ld.global.u64         ", 22);
    if (own_lines) {
        static const char more[] = "mov.u32 %r7, %ctaid.x;\nmul.wide.u32 %d1, %r7, 64;\nadd.u64 %d0, %d0, %d1;\n";
        at = strstr(text, "mov.u32 %r2, %tid.x;");
        memmove(at + sizeof more - 1, at, strlen(at) + 1);
        memcpy(at, more, sizeof more - 1);
    }
    void *module, *kernel; MUST(ModuleLoadData(&module, text)); MUST(ModuleGetFunction(&kernel, module, "hipfile_copy_late"));
    free(text);
    return kernel;
}

static double launches(void *kernel, unsigned groups, uint64_t *late, CUstream s) {
    void *p = late, *params[] = {&p};
    double best = 1e9;
    for (int round = 0; round < 4; round++) {
        double t = now();
        for (int k = 0; k < 64; k++) MUST(LaunchKernel(kernel, groups, 1, 1, 1024, 1, 1, 0, s, params, NULL));
        MUST(StreamSynchronize(s));
        if ((now() - t) / 64 < best) best = (now() - t) / 64;
    }
    return best * 1e6;
}

static void kernel_speed(void) {
    start();
    printf("\n");
    void *kernels[] = {kernel_that(0, 0), kernel_that(1, 0), kernel_that(0, 1), kernel_that(1, 1)};
    const char *names[] = {"volatile, one line", "plain, one line", "volatile, own lines", "plain, own lines"};
    CUdeviceptr memory; MUST(MemAlloc(&memory, 16 << 20)); char *block = pinned(16 << 20); uint64_t *late = pinned(4096); CUstream s; MUST(StreamCreate(&s, 1));
    const size_t sizes[] = {4096, 65536, 262144, 1 << 20, 4 << 20, 16 << 20};
    const unsigned grids[] = {1, 2, 4, 8, 16, 32};
    for (int down = 0; down < 2; down++) for (size_t z = 0; z < 6; z++) for (int k = 0; k < 4; k++) {
        for (int g = 0; g < 32; g++) { late[8 * g] = down ? (uintptr_t)block : memory; late[8 * g + 1] = down ? memory : (uintptr_t)block; late[8 * g + 2] = sizes[z]; }
        printf("    %s, %zu KiB, words read %s; us each by groups of 1024: ", down ? "from the GPU" : "to the GPU", sizes[z] >> 10, names[k]);
        for (int g = 0; g < 6; g++) printf(" %u: %.1f", grids[g], launches(kernels[k], grids[g], late, s));
        printf("\n");
    }
    for (int align = 0; align < 2; align++) {
        late[0] = memory + align; late[1] = (uintptr_t)block; late[2] = 1 << 20;
        printf("    1 MiB to address %% 16 = %d, 4 groups: %.1f us\n", align, launches(kernels[0], 4, late, s));
    }
    late[2] = 0; void *p = late, *params[] = {&p};
    double t = now(); for (int k = 0; k < 100; k++) { MUST(LaunchKernel(kernels[0], 1, 1, 1, 1024, 1, 1, 0, s, params, NULL)); MUST(StreamSynchronize(s)); }
    printf("    an empty copy, waited for: %.1f us\n", (now() - t) / 100 * 1e6);
}

/* A thread submits one kind of command to a held stream until that blocks. Can other threads work meanwhile? */
static struct { CUstream stream; int kind; volatile long count; void *kernel; uint64_t *late; volatile uint64_t *word; } full;
static void nothing(void *unused) { (void)unused; }
static void *fills(void *unused) {
    void *p = full.late, *params[] = {&p};
    MUST(CtxSetCurrent(context));
    while (full.count < 5000) {
        if (full.kind == 0) MUST(LaunchHostFunc(full.stream, nothing, NULL));
        if (full.kind == 1) MUST(WaitValue64(full.stream, (uintptr_t)full.word, 1, 0));
        if (full.kind == 2) MUST(LaunchKernel(full.kernel, 1, 1, 1, 32, 1, 1, 0, full.stream, params, NULL));
        full.count++;
    }
    return unused;
}
static volatile int tried;
static CUdeviceptr tried_memory;
static CUstream tried_stream;
static char *tried_block;
static void *tries(void *unused) {
    MUST(CtxSetCurrent(context));
    tried = 1; MUST(MemcpyHtoDAsync(tried_memory, tried_block, 4096, tried_stream));
    tried = 2; MUST(StreamSynchronize(tried_stream));
    tried = 3; MUST(MemcpyHtoD(tried_memory, tried_block, 4096));
    tried = 4;
    return unused;
}
static void full_streams(void) {
    start();
    printf("\n");
    static const char *const kinds[] = {"host functions", "waits", "kernels"};
    static const char *const steps[] = {"cuCtxSetCurrent", "queueing a copy elsewhere", "waiting for that", "cuMemcpyHtoD"};
    MUST(MemAlloc(&tried_memory, 4096)); MUST(StreamCreate(&tried_stream, 1)); tried_block = pinned(4096);
    full.kernel = kernel_that(0, 0); full.late = pinned(64); full.word = pinned(64);
    for (int kind = 0; kind < 3; kind++) {
        volatile uint64_t *gate = pinned(64); pthread_t one, two;
        *gate = 0; *full.word = 1;
        MUST(StreamCreate(&full.stream, 1)); full.kind = kind; full.count = 0; tried = 0;
        MUST(WaitValue64(full.stream, (uintptr_t)gate, 1, 0));
        pthread_create(&one, NULL, fills, NULL);
        long before = -1; while (before != full.count) { before = full.count; usleep(200000); }
        pthread_create(&two, NULL, tries, NULL);
        usleep(500000);
        printf("    a held stream takes %ld %s%s; another thread meanwhile %s%s\n", full.count, kinds[kind], full.count < 5000 ? ", then the call waits" : " and more", tried == 4 ? "does its copies" : "waits in ", tried == 4 ? "" : steps[tried]);
        *gate = 1; pthread_join(one, NULL); pthread_join(two, NULL); MUST(StreamSynchronize(full.stream));
    }
}

#define TIMED(what, call) do { double t_ = now(); for (int i_ = 0; i_ < 1000; i_++) MUST(call); printf(" %s %.0f;", what, (now() - t_) * 1e6); } while (0)
static void small_calls(void) {
    start();
    CUcontext current; CUevent event; CUstream own; int state, mode = 2; CUdeviceptr memory; char *block = pinned(1 << 20), *plain = malloc(1 << 20);
    int type = 0; void *place = &type; int attribute = 2;
    MUST(EventCreate(&event, 2)); MUST(StreamCreate(&own, 1)); MUST(MemAlloc(&memory, 1 << 20)); memset(plain, 1, 1 << 20);
    TIMED("cuCtxGetCurrent", CtxGetCurrent(&current)); TIMED("exchange of the capture mode", ExchangeMode(&mode));
    TIMED("cuStreamIsCapturing of the default stream", IsCapturing(NULL, &state)); TIMED("cuPointerGetAttributes", PointerGetAttributes(1, &attribute, &place, memory));
    TIMED("an idle stream waited for", StreamSynchronize(own)); TIMED("the default stream waited for", StreamSynchronize(NULL));
    TIMED("an event recorded on the default stream", EventRecord(event, NULL)); MUST(StreamSynchronize(NULL));
    TIMED("a stream told to wait for it", WaitEvent(own, event, 0)); MUST(StreamSynchronize(own));
    for (size_t len = 4096; len <= 1 << 16; len *= 2) {
        printf("\n    %zu KiB to the GPU:", len >> 10);
        TIMED("cuMemcpyHtoD, pinned", MemcpyHtoD(memory, block, len));
        TIMED("plain", MemcpyHtoD(memory, plain, len));
        TIMED("plain, then waited for", MemcpyHtoD(memory, plain, len) || StreamSynchronize(NULL));
        TIMED("queued on the default stream from pinned, waited for", MemcpyHtoDAsync(memory, block, len, NULL) || StreamSynchronize(NULL));
        TIMED("from plain", MemcpyHtoDAsync(memory, plain, len, NULL) || StreamSynchronize(NULL));
        TIMED("on a stream of its own from pinned", MemcpyHtoDAsync(memory, block, len, own) || StreamSynchronize(own));
        TIMED("from plain", MemcpyHtoDAsync(memory, plain, len, own) || StreamSynchronize(own));
        TIMED("queued only, from pinned", MemcpyHtoDAsync(memory, block, len, own)); MUST(StreamSynchronize(own));
        TIMED("to the host: cuMemcpyDtoH, pinned", MemcpyDtoH(block, memory, len));
        TIMED("plain", MemcpyDtoH(plain, memory, len));
    }
}

static const struct { const char *name; void (*run)(void); } PARTS[] = {
    {"what pointers are:", pointers}, {"a blocking stream is held:", blocking_held}, {"a non-blocking stream is held:", free_held},
    {"captures:", captures}, {"the late copy:", kernel_speed}, {"full streams:", full_streams},
    {"small calls, ns each:", small_calls},
};

int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) { printf("SKIP: %s\n", dlerror()); return 0; }
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++)
        if (!(*(void **)SYMBOLS[i].to = dlsym(cuda, SYMBOLS[i].name))) { printf("no %s\n", SYMBOLS[i].name); return 1; }
    for (size_t part = 0; part < sizeof PARTS / sizeof *PARTS; part++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) { printf("%s ", PARTS[part].name); PARTS[part].run(); printf("\n"); fflush(stdout); _exit(0); }
        int status = 0, waited = 0;
        double limit = now() + 60;
        while (!(waited = waitpid(pid, &status, WNOHANG)) && now() < limit) usleep(10000);
        if (!waited) { kill(pid, SIGKILL); waitpid(pid, &status, 0); printf("HANGS (killed after 60 s)\n"); }
        else if (WIFSIGNALED(status)) printf("died of signal %d\n", WTERMSIG(status));
    }
    return 0;
}
