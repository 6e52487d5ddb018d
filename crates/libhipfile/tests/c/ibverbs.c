/*
 * An emulated libibverbs.so.1: two devices, each with one port and a few addresses, that register memory which the emulated GPU
 * exports. emu_rdma copies as such a device would, within what was registered. It is built by the test that loads it.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ibv_device { const char *name; uint8_t net; };
struct ibv_context { struct ibv_device *device; };
struct ibv_pd { struct ibv_context *context; };
struct ibv_mr { struct ibv_context *context; struct ibv_pd *pd; void *addr; size_t length; uint32_t handle, lkey, rkey; };
union ibv_gid { uint8_t raw[16]; };
struct ibv_gid_entry { union ibv_gid gid; uint32_t gid_index, port_num, gid_type, ndev_ifindex; };

static struct ibv_device devices[] = { { "emu_0", 1 }, { "emu_1", 2 } };
static struct ibv_device *list[] = { &devices[0], &devices[1], NULL };

/* What is registered now. */
static struct { struct ibv_mr mr; char *reach; int access; int used; } regions[64];

/* What the tests ask for and are told. */
int emu_fail_registrations; /* an errno for all that follow */
size_t emu_largest;         /* what is larger fails with ENOMEM; 0: nothing */
int emu_registered;         /* so far */
int emu_open;               /* now */
int emu_access;             /* of the last */

struct ibv_device **ibv_get_device_list(int *count) { *count = 2; return list; }
void ibv_free_device_list(struct ibv_device **given) { (void)given; }
const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *context = malloc(sizeof *context);
    context->device = device;
    return context;
}

int ibv_close_device(struct ibv_context *context) { free(context); return 0; }

/* As a RoCE port has them: fe80::<net>, nothing, 10.0.<net>.7 and fd00::<net>:7, the last two for RoCE v1 and then for v2. */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    const uint8_t net = context->device->net;
    if (port != 1 || index > 5)
        return -1;
    memset(gid, 0, sizeof *gid);
    if (index == 0) {
        gid->raw[0] = 0xfe;
        gid->raw[1] = 0x80;
        gid->raw[15] = net;
    } else if (index == 2 || index == 3) {
        const uint8_t v4[] = { 0xff, 0xff, 10, 0, net, 7 };
        memcpy(gid->raw + 10, v4, sizeof v4);
    } else if (index > 3) {
        gid->raw[0] = 0xfd;
        gid->raw[13] = net;
        gid->raw[15] = 7;
    }
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    if (flags != 0 || size != sizeof *entry || port > 255 || ibv_query_gid(context, (uint8_t)port, (int)index, &entry->gid) != 0)
        return EINVAL;
    if (index == 1)
        return ENODATA;
    entry->gid_index = index;
    entry->port_num = port;
    entry->gid_type = index == 3 || index == 5 ? 2 : 1;
    entry->ndev_ifindex = 0;
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = malloc(sizeof *pd);
    pd->context = context;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd) { free(pd); return 0; }

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
    char text[128] = "";
    unsigned long at, len;
    if (emu_fail_registrations || (emu_largest && length > emu_largest)) {
        errno = emu_fail_registrations ? emu_fail_registrations : ENOMEM;
        return NULL;
    }
    if (pread(fd, text, sizeof text - 1, 0) <= 0 || sscanf(text, "hip-emu dma-buf %lx %lx", &at, &len) != 2
        || offset > len || length > len - offset) {
        errno = EINVAL;
        return NULL;
    }
    for (uint32_t n = 0; n < sizeof regions / sizeof *regions; n++) {
        if (__atomic_exchange_n(&regions[n].used, 1, __ATOMIC_ACQ_REL))
            continue;
        regions[n].mr = (struct ibv_mr){ pd->context, pd, (void *)iova, length, n, 1000 + n, 2000 + n };
        regions[n].reach = (char *)at + offset;
        regions[n].access = emu_access = access;
        __atomic_add_fetch(&emu_registered, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&emu_open, 1, __ATOMIC_RELAXED);
        return &regions[n].mr;
    }
    errno = ENOMEM;
    return NULL;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    const uint32_t n = mr->handle;
    memset(&regions[n].mr, 0, sizeof regions[n].mr);
    __atomic_sub_fetch(&emu_open, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&regions[n].used, 0, __ATOMIC_RELEASE);
    return 0;
}

/* Copies between host memory and registered memory; 0, or what a work request would fail for. */
int emu_rdma(const char *device, uint32_t rkey, uint64_t addr, char *host, size_t len, int write_into_gpu)
{
    const uint32_t n = rkey - 2000;
    if (n >= sizeof regions / sizeof *regions || !regions[n].used || strcmp(regions[n].mr.context->device->name, device) != 0)
        return EACCES;
    const uint64_t base = (uint64_t)regions[n].mr.addr;
    if (addr < base || len > regions[n].mr.length || addr - base > regions[n].mr.length - len)
        return ERANGE;
    if (!(regions[n].access & (write_into_gpu ? 2 : 4)))
        return EPERM;
    char *at = regions[n].reach + (addr - base);
    if (write_into_gpu)
        memcpy(at, host, len);
    else
        memcpy(host, at, len);
    return 0;
}
