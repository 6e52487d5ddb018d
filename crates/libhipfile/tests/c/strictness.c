/*
 * strictness: device memory is out of the CPU's reach, so that a library that touches it by accident is caught by
 * every other test. Touches it on purpose, and so cannot run under valgrind or a sanitizer.
 */
#include <setjmp.h>
#include <signal.h>

#include "device.h"

static sigjmp_buf back;
static void *volatile fault_address;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    fault_address = info->si_addr;
    siglongjmp(back, 1);
}

static void load(volatile char *at)
{
    (void)*at;
}

static void store(volatile char *at)
{
    *at = 1;
}

static bool faults(void (*access)(volatile char *), char *at)
{
    fault_address = NULL;
    if (sigsetjmp(back, 1) != 0) {
        CHECK(fault_address == at);
        return true;
    }
    access(at);
    return false;
}

int main(void)
{
    enum { LEN = 100000 };
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
    CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);

    char local = 0;
    CHECK(!faults(load, &local));
    CHECK(!faults(store, &local));

    char *device = dev_alloc(LEN);
    make_file("data", LEN, 1);
    const int fd = open_file("data", O_RDWR);
    const size_t places[] = { 0, 1, 4096, 65535, LEN - 1 };
    hipFileHandle_t file = register_fd(fd);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            CHECK(faults(load, device + places[i]));
            CHECK(faults(store, device + places[i]));
            /* Neither can the kernel use the address on the process's behalf. */
            CHECK_EQ(pread(fd, device + places[i], 1, 0), -1);
            CHECK_EQ(errno, EFAULT);
            CHECK_EQ(pwrite(fd, device + places[i], 1, 0), -1);
            CHECK_EQ(errno, EFAULT);
        }
        /* As before, after the library and HIP have used it. */
        if (round == 0)
            CHECK_OK(hipFileBufRegister(device, LEN, 0));
        CHECK_IO(hipFileRead(file, device, LEN, 0, 0), LEN);
        CHECK_IO(hipFileWrite(file, device, LEN, 0, 0), LEN);
        CHECK_HIP(hipMemset(device, round, LEN));
    }

    /* An unaligned view of the file through the CPU would have shown here. */
    unsigned char expected[LEN];
    pattern(expected, LEN, 1);
    dev_put(device, expected, LEN);
    CHECK_DEVICE(device, expected, LEN);
    close_driver_fully();
    CHECK_HIP(hipFree(device));
    puts("OK strictness");
    return 0;
}
