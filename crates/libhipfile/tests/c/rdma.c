/*
 * rdma: a file system in the program whose devices write into GPU memory and read from it: which device is chosen, what it is
 * told, what is exported, how long it stays registered, and that bytes are staged where a device or a registration is missing.
 *
 * The devices are those of ibverbs.c.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/mman.h>

#include <hipfile_ext.h>

#include "device.h"

enum { LEN = 1 << 20, SIZE = 3 * LEN };

static char store[SIZE];       /* the file */
static _Alignas(8) char addrs[200]; /* one behind the other, each as long as its family has it */
static size_t addrs_len;
static int addr_count;
static int priorities[3];      /* of 10.0.1.7, 10.0.2.7 and others */
static int lists, rdma_calls, host_calls;
static int refuse;             /* an errno for RDMA */
static int whole;              /* whether more than was asked for may be within reach: all of a registration */
static ssize_t shorter;        /* that many bytes less by RDMA */
static char last_device[32];   /* who moved bytes last */

static int (*emu_rdma)(const char *, uint32_t, uint64_t, char *, size_t, int);
static int *emu_fail_registrations, *emu_registered, *emu_open, *emu_access;
static size_t *emu_largest;

static const char *fs_type(void *handle)
{
    CHECK(handle != NULL);
    return "rdmafs";
}

static int device_list(void *handle, struct sockaddr **hostaddrs)
{
    CHECK(handle != NULL);
    lists++;
    *hostaddrs = (struct sockaddr *)addrs;
    return addr_count;
}

static int device_priority(void *handle, char *buffer, size_t size, hoff_t offset, struct sockaddr *hostaddr)
{
    CHECK(handle != NULL && buffer != NULL && size > 0 && offset >= 0);
    char text[INET6_ADDRSTRLEN];
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    memcpy(&in, hostaddr, sizeof in);
    if (in.sin_family == AF_INET6) {
        memcpy(&in6, hostaddr, sizeof in6);
        CHECK(inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text) != NULL);
    } else {
        CHECK_EQ(in.sin_family, AF_INET);
        CHECK(inet_ntop(AF_INET, &in.sin_addr, text, sizeof text) != NULL);
    }
    if (strcmp(text, "10.0.1.7") == 0 || strcmp(text, "fd00::1:7") == 0)
        return priorities[0];
    return priorities[strcmp(text, "10.0.2.7") == 0 || strcmp(text, "fd00::2:7") == 0 ? 1 : 2];
}

static ssize_t move(const char *buffer, size_t size, hoff_t offset, const hipFileRDMAInfo_t *info, char *host, int read)
{
    if (offset >= SIZE)
        return 0;
    if (size > (size_t)(SIZE - offset))
        size = (size_t)(SIZE - offset);
    char *file = store + offset;
    if (info == NULL) {
        host_calls++;
        memcpy(read ? host : file, read ? file : buffer, size);
        return (ssize_t)size;
    }
    rdma_calls++;
    if (refuse) {
        errno = refuse;
        return -1;
    }
    CHECK_EQ(info->version, 1);
    CHECK_EQ(info->desc_len, (int)strlen(info->desc_str));
    char gid[40];
    unsigned port, rkey, gid_index;
    unsigned long pd, addr, len;
    char gid_type[16];
    CHECK_EQ(sscanf(info->desc_str, "hipfile-rdma/1 device=%31s port=%u gid=%39s pd=%lx addr=%lx len=%lu rkey=%x gid_index=%u gid_type=%15s",
                    last_device, &port, gid, &pd, &addr, &len, &rkey, &gid_index, gid_type), 9);
    CHECK(port == 1 && strlen(gid) == 32 && pd != 0);
    /* Of the two entries with the address the one for RoCE v2. */
    CHECK(strcmp(gid_type, "roce-v2") == 0 && gid_index == (strncmp(gid, "fd", 2) == 0 ? 5 : 3));
    CHECK(addr == (unsigned long)buffer && len >= size);
    if (!whole) {
        /* Not a byte beyond what was asked for is within reach. */
        char byte;
        CHECK_EQ(emu_rdma(last_device, rkey, addr + len, &byte, 1, read), ERANGE);
        CHECK_EQ(emu_rdma(last_device, rkey, addr - 1, &byte, 1, read), ERANGE);
        CHECK_EQ(emu_rdma(last_device, rkey, addr, &byte, 1, !read), EPERM);
    }
    size -= (size_t)shorter;
    CHECK_EQ(emu_rdma(last_device, rkey, addr, file, size, read), 0);
    return (ssize_t)size;
}

static ssize_t fs_read(void *handle, char *buffer, size_t size, hoff_t offset, hipFileRDMAInfo_t *info)
{
    CHECK(handle != NULL);
    return move(buffer, size, offset, info, buffer, 1);
}

static ssize_t fs_write(void *handle, const char *buffer, size_t size, hoff_t offset, hipFileRDMAInfo_t *info)
{
    CHECK(handle != NULL);
    return move(buffer, size, offset, info, NULL, 0);
}

static const hipFileFSOps_t ops = { fs_type, device_list, device_priority, fs_read, fs_write };

static void add_address(const char *text)
{
    struct sockaddr_in in = { .sin_family = AF_INET };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
    const bool is_v4 = inet_pton(AF_INET, text, &in.sin_addr) == 1;
    CHECK(is_v4 || inet_pton(AF_INET6, text, &in6.sin6_addr) == 1);
    const size_t len = is_v4 ? sizeof in : sizeof in6;
    memcpy(addrs + addrs_len, is_v4 ? (const void *)&in : (const void *)&in6, len);
    addrs_len += len;
    addr_count++;
}

static hipFileHandle_t register_file(int fd)
{
    hipFileDescr_t descr = { .type = hipFileHandleTypeUserspaceFS, .fs_ops = &ops };
    descr.handle.fd = fd;
    hipFileHandle_t file;
    CHECK_OK(hipFileHandleRegister(&file, &descr));
    return file;
}

static int opened(void) { return __atomic_load_n(emu_open, __ATOMIC_RELAXED); }

static int registered(void) { return __atomic_load_n(emu_registered, __ATOMIC_RELAXED); }

/* Reads and writes at odd places, and compares all of the memory; how many calls were by RDMA. */
static int round_trip(hipFileHandle_t file, char *device)
{
    static char memory[LEN];
    static const struct { size_t len, at, offset; } asks[] = {
        { LEN, 0, 0 }, { LEN - 512, 512, 77 }, { 1, 4095, SIZE - 1 }, { 100001, 3, 4099 }, { 4096, 4096, 8192 },
    };
    const int before = rdma_calls;
    for (size_t n = 0; n < sizeof asks / sizeof *asks; n++) {
        const size_t len = asks[n].len, at = asks[n].at, offset = asks[n].offset;
        for (size_t i = 0; i < LEN; i++)
            memory[i] = (char)(i * 7 + n);
        dev_put(device, memory, LEN);
        CHECK_IO(hipFileRead(file, device, len, (hoff_t)offset, (hoff_t)at), len);
        memcpy(memory + at, store + offset, len);
        CHECK_DEVICE(device, memory, LEN);
        for (size_t i = 0; i < len; i++)
            memory[at + i] ^= 0x5a;
        dev_put(device, memory, LEN);
        CHECK_IO(hipFileWrite(file, device, len, (hoff_t)offset, (hoff_t)at), len);
        CHECK(memcmp(store + offset, memory + at, len) == 0);
    }
    CHECK(whole || opened() == 0);
    return rdma_calls - before;
}

/* The export is rounded outwards to pages; the registration is not. */
static void behaviour_36_in_the_middle_of_a_page(hipFileHandle_t file, char *device)
{
    CHECK_OK(hipFileBufRegister(device + 512, LEN - 1024, HIPFILE_RDMA_REGISTER));
    CHECK_IO(hipFileRead(file, device, 512, 7, 0), 512);
    whole = 1;
    CHECK_IO(hipFileRead(file, device + 512, LEN - 1024, 0, 0), LEN - 1024);
    CHECK_DEVICE(device, store + 7, 512);
    CHECK_DEVICE(device + 512, store, LEN - 1024);
    CHECK_OK(hipFileBufDeregister(device + 512));
    whole = 0;
    CHECK_EQ(opened(), 0);
}

/* What is registered is made known to a device once: when it is first to reach it, and until the registration ends. */
static void registered_once(hipFileHandle_t file, char *device)
{
    whole = 1;
    for (int flags = 0; flags < 4; flags++) {
        const int before = registered();
        CHECK_OK(hipFileBufRegister(device, LEN, flags));
        CHECK_EQ(registered(), before);
        for (int round = 0; round < 3; round++)
            CHECK_EQ(round_trip(file, device), 10);
        CHECK_EQ(registered(), before + 1);
        CHECK_EQ(*emu_access, flags & HIPFILE_RDMA_RELAXED_ORDERING ? 1 << 20 | 7 : 7);
        /* Another device has to be told by itself, also once. */
        priorities[1] = 4;
        for (int round = 0; round < 2; round++)
            CHECK_EQ(round_trip(file, device), 10);
        CHECK(strcmp(last_device, "emu_1") == 0);
        priorities[1] = 3;
        CHECK_EQ(round_trip(file, device), 10);
        CHECK(strcmp(last_device, "emu_0") == 0);
        CHECK_EQ(registered(), before + 2);
        CHECK_EQ(opened(), 2);
        CHECK_OK(hipFileBufDeregister(device));
        CHECK_EQ(opened(), 0);
    }
    whole = 0;
}

/* Each in its place of one allocation: an export knows where in it it lies. */
static void behaviour_34_three_tensors(hipFileHandle_t file, char *device)
{
    static const struct { size_t at, len; hoff_t offset; } tensors[] = {
        { 512, 90000, 11 }, { 90512, 110001, 4096 }, { 200513, 65536, 70003 },
    };
    const int before = registered();
    static char memory[LEN];
    memset(memory, 0x11, LEN);
    dev_put(device, memory, LEN);
    whole = 1;
    for (size_t n = 0; n < 3; n++)
        CHECK_OK(hipFileBufRegister(device + tensors[n].at, tensors[n].len, HIPFILE_RDMA_REGISTER));
    for (size_t n = 0; n < 3; n++) {
        CHECK_IO(hipFileRead(file, device + tensors[n].at, tensors[n].len, tensors[n].offset, 0), tensors[n].len);
        memcpy(memory + tensors[n].at, store + tensors[n].offset, tensors[n].len);
    }
    CHECK_DEVICE(device, memory, LEN);
    CHECK_EQ(registered(), before + 3);
    for (size_t n = 0; n < 3; n++)
        CHECK_OK(hipFileBufDeregister(device + tensors[n].at));
    whole = 0;
    CHECK_EQ(opened(), 0);
}

/* A device whose window is smaller than what is registered is told of what is wanted, transfer by transfer. */
static void behaviour_37_a_window_too_small(hipFileHandle_t file, char *device)
{
    CHECK_OK(hipFileBufRegister(device, LEN, 0));
    *emu_largest = LEN - 1;
    const int before = registered(), staged = host_calls;
    for (int round = 0; round < 3; round++) {
        CHECK_IO(hipFileRead(file, device, LEN / 2, round * 100, round), LEN / 2);
        CHECK_DEVICE(device + round, store + round * 100, LEN / 2);
    }
    CHECK(registered() == before + 3 && opened() == 0 && host_calls == staged);
    /* What does not fit at all is staged. */
    CHECK_IO(hipFileRead(file, device, LEN, 5, 0), LEN);
    CHECK_DEVICE(device, store + 5, LEN);
    CHECK(host_calls > staged);
    host_calls = staged;
    *emu_largest = 0;
    CHECK_OK(hipFileBufDeregister(device));
}

int main(void)
{
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
    CHECK(verbs != NULL);
    *(void **)&emu_rdma = dlsym(verbs, "emu_rdma");
    emu_fail_registrations = dlsym(verbs, "emu_fail_registrations");
    emu_registered = dlsym(verbs, "emu_registered");
    emu_open = dlsym(verbs, "emu_open");
    emu_access = dlsym(verbs, "emu_access");
    emu_largest = dlsym(verbs, "emu_largest");
    CHECK(emu_rdma != NULL && emu_fail_registrations != NULL && emu_registered != NULL && emu_open != NULL);
    CHECK(emu_access != NULL && emu_largest != NULL);
    for (size_t i = 0; i < SIZE; i++)
        store[i] = (char)(i * 2654435761u >> 13);

    const int fd = memfd_create("stands for a file", 0);
    CHECK(fd >= 0);
    char *device = dev_alloc(LEN);

    /* No device of the list is here: staged, and the reason says so. */
    add_address("10.0.9.7");
    hipFileHandle_t file = register_file(fd);
    CHECK_EQ(round_trip(file, device), 0);
    CHECK(host_calls > 0 && lists == 1);
    hipFileExtHandleInfo_t info = { .size = sizeof info };
    CHECK_OK(hipFileExtHandleGetInfo(file, &info));
    CHECK(strcmp(info.engine, "userspace") == 0 && strcmp(info.reason, "no-rdma") == 0);
    hipFileHandleDeregister(file);

    /* The one that suits best, of equal ones the first; by RDMA, and nothing is staged. */
    add_address("10.0.1.7");
    add_address("10.0.2.7");
    file = register_file(fd);
    host_calls = 0;
    priorities[2] = 100;
    static const struct { int first, second; const char *device; } choices[] = {
        { 1, 2, "emu_1" }, { 2, 1, "emu_0" }, { 3, 3, "emu_0" }, { -1, 0, "emu_1" },
    };
    for (size_t n = 0; n < sizeof choices / sizeof *choices; n++) {
        priorities[0] = choices[n].first;
        priorities[1] = choices[n].second;
        CHECK_EQ(round_trip(file, device), 10);
        CHECK(strcmp(last_device, choices[n].device) == 0);
    }
    CHECK(host_calls == 0 && lists == 2);
    CHECK_OK(hipFileExtHandleGetInfo(file, &info));
    CHECK(strcmp(info.engine, "rdma") == 0 && strcmp(info.reason, "") == 0);
    CHECK(registered() >= 40);

    priorities[0] = priorities[1] = 3;
    behaviour_36_in_the_middle_of_a_page(file, device);
    registered_once(file, device);
    behaviour_34_three_tensors(file, device);
    behaviour_37_a_window_too_small(file, device);
    CHECK_EQ(host_calls, 0);

    /* The end of the file, and a device that does less than all. */
    CHECK_IO(hipFileRead(file, device, LEN, SIZE - 1000, 0), 1000);
    CHECK_IO(hipFileRead(file, device, LEN, SIZE, 0), 0);
    shorter = 24;
    CHECK_IO(hipFileRead(file, device, 4096, 0, 0), 4072);
    CHECK_IO(hipFileWrite(file, device, 4096, 0, 0), 4072);
    shorter = 0;

    /* None suits, the file system refuses, or nothing can be registered (behaviour 37): staged. */
    priorities[0] = priorities[1] = -1;
    CHECK_EQ(round_trip(file, device), 0);
    priorities[0] = 0;
    CHECK_EQ(round_trip(file, device), 10);
    refuse = EOPNOTSUPP;
    round_trip(file, device);
    refuse = 0;
    *emu_fail_registrations = ENOMEM;
    const int staged = host_calls;
    CHECK_EQ(round_trip(file, device), 0);
    CHECK(host_calls > staged);
    *emu_fail_registrations = 0;
    hipFileHandleDeregister(file);

    /* Any other error is the answer. */
    file = register_file(fd);
    refuse = ENOSPC;
    errno = 0;
    CHECK(hipFileWrite(file, device, 4096, 0, 0) == -1 && errno == ENOSPC);
    refuse = 0;
    CHECK_EQ(round_trip(file, device), 10);
    hipFileHandleDeregister(file);

    /* By IPv6, entries of both kinds in one array, and one of another family. */
    addr_count = 0;
    addrs_len = 0;
    memset(addrs, 0, sizeof addrs);
    priorities[0] = 1;
    priorities[1] = 2;
    add_address("fd00::9:7");
    addrs[addrs_len] = AF_UNIX;
    addrs_len += sizeof(struct sockaddr);
    addr_count++;
    add_address("10.0.1.7");
    add_address("fd00::2:7");
    file = register_file(fd);
    CHECK_EQ(round_trip(file, device), 10);
    CHECK(strcmp(last_device, "emu_1") == 0);
    priorities[0] = 3;
    CHECK_EQ(round_trip(file, device), 10);
    CHECK(strcmp(last_device, "emu_0") == 0);

    /* The driver's end ends registrations with devices too. */
    CHECK_OK(hipFileBufRegister(device, LEN, 0));
    whole = 1;
    CHECK_EQ(round_trip(file, device), 10);
    CHECK_EQ(opened(), 1);
    while (hipFileUseCount() > 0)
        CHECK_OK(hipFileDriverClose());
    CHECK_EQ(opened(), 0);
    CHECK_HIP(hipFree(device));
    CHECK_EQ(close(fd), 0);
    puts("OK rdma");
    return 0;
}
