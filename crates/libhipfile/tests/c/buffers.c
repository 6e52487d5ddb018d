/* buffers: every answer of hipFileBufRegister and hipFileBufDeregister, and how far a registration reaches. */
#include "device.h"

#define SIZE ((size_t)65536)

static void codes(char *device)
{
    CHECK_OK(hipFileDriverOpen());
    CHECK_CODE(hipFileBufDeregister(device), hipFileMemoryNotRegistered);
    CHECK_CODE(hipFileBufDeregister(NULL), hipFileMemoryNotRegistered);
    CHECK_CODE(hipFileBufRegister(NULL, 0, 0), hipFileInvalidValue);
    CHECK_CODE(hipFileBufRegister(NULL, SIZE, 0), hipFileInvalidValue);
    CHECK_CODE(hipFileBufRegister(NULL, SIZE_MAX, 0), hipFileInvalidValue);

    CHECK_OK(hipFileBufRegister(device, SIZE, 0));
    CHECK_CODE(hipFileBufRegister(device, SIZE, 0), hipFileMemoryAlreadyRegistered);
    /* Asked before the length is looked at. */
    CHECK_CODE(hipFileBufRegister(device, SIZE + 1, 0), hipFileMemoryAlreadyRegistered);
    CHECK_CODE(hipFileBufRegister(device, 1, 0), hipFileMemoryAlreadyRegistered);
    /* Only the exact base names the registration. */
    CHECK_CODE(hipFileBufDeregister(device + 1), hipFileMemoryNotRegistered);
    CHECK_OK(hipFileBufDeregister(device));
    CHECK_CODE(hipFileBufDeregister(device), hipFileMemoryNotRegistered);

    /* Inside the allocation, or not. */
    CHECK_CODE(hipFileBufRegister(device, SIZE + 1, 0), hipFileHipPointerRangeError);
    CHECK_CODE(hipFileBufRegister(device + 1, SIZE, 0), hipFileHipPointerRangeError);
    CHECK_CODE(hipFileBufRegister(device + SIZE - 1, 2, 0), hipFileHipPointerRangeError);
    CHECK_CODE(hipFileBufRegister(device, SIZE_MAX, 0), hipFileHipPointerRangeError);
    CHECK_CODE(hipFileBufRegister(device + 4096, SIZE_MAX - 4095, 0), hipFileHipPointerRangeError);
    CHECK_CODE(hipFileBufRegister(device + 1, (size_t)1 << 63, 0), hipFileHipPointerRangeError);
    CHECK_CODE(hipFileBufDeregister(device), hipFileMemoryNotRegistered);

    /* Flags are kept, not judged. */
    const int flags[] = { HIPFILE_RDMA_REGISTER, HIPFILE_RDMA_RELAXED_ORDERING, 3, -1, 0x7fffffff };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        CHECK_OK(hipFileBufRegister(device, SIZE, flags[i]));
        CHECK_OK(hipFileBufDeregister(device));
    }
    close_driver_fully();
}

static void other_memory(void)
{
    void *memory = NULL;
    unsigned char on_stack[4096];
    static unsigned char in_image[4096];
    unsigned char *on_heap = host_alloc(SIZE);
    CHECK_OK(hipFileDriverOpen());
    CHECK_CODE(hipFileBufRegister(on_heap, SIZE, 0), hipFileHipMemoryTypeInvalid);
    CHECK_CODE(hipFileBufRegister(on_heap, 0, 0), hipFileHipMemoryTypeInvalid);
    CHECK_CODE(hipFileBufRegister(on_stack, sizeof on_stack, 0), hipFileHipMemoryTypeInvalid);
    CHECK_CODE(hipFileBufRegister(in_image, sizeof in_image, 0), hipFileHipMemoryTypeInvalid);
    CHECK_CODE(hipFileBufDeregister(on_heap), hipFileMemoryNotRegistered);

    CHECK_HIP(hipHostMalloc(&memory, SIZE, hipHostMallocDefault));
    CHECK_CODE(hipFileBufRegister(memory, SIZE, 0), hipFileHipMemoryTypeInvalid);
    CHECK_HIP(hipHostFree(memory));

    CHECK_HIP(hipMallocManaged(&memory, SIZE, hipMemAttachGlobal));
    CHECK_CODE(hipFileBufRegister(memory, SIZE, 0), hipFileHipMemoryTypeInvalid);
    CHECK_HIP(hipFree(memory));

    CHECK_HIP(hipHostRegister(on_heap, SIZE, hipHostRegisterDefault));
    CHECK_CODE(hipFileBufRegister(on_heap, SIZE, 0), hipFileHipMemoryTypeInvalid);
    CHECK_HIP(hipHostUnregister(on_heap));
    free(on_heap);
    close_driver_fully();
}

static void interior_and_overlapping(char *device, hipFileHandle_t file)
{
    /* Interior bases, odd ones too; overlapping and nested ranges, as long as the bases differ. */
    CHECK_OK(hipFileBufRegister(device, SIZE, 0));
    CHECK_OK(hipFileBufRegister(device + 4096, SIZE - 4096, 0));
    CHECK_OK(hipFileBufRegister(device + 4097, 100, 0));
    CHECK_OK(hipFileBufRegister(device + 8192, 8192, 0));
    CHECK_CODE(hipFileBufRegister(device + 4097, 100, 0), hipFileMemoryAlreadyRegistered);

    /* One range of the file through each of them. */
    unsigned char expected[100];
    pattern(expected, sizeof expected, 9);
    const hoff_t offsets[] = { 0, 4096, 4097, 8192 };
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        dev_poison(device, SIZE);
        CHECK_IO(hipFileRead(file, device + offsets[i], 100, 0, 0), 100);
        CHECK_POISON(device, (size_t)offsets[i]);
        CHECK_DEVICE(device + offsets[i], expected, 100);
        CHECK_POISON(device + offsets[i] + 100, SIZE - (size_t)offsets[i] - 100);
    }

    /* Taking one away leaves the others. */
    CHECK_OK(hipFileBufDeregister(device));
    CHECK_CODE(hipFileBufDeregister(device), hipFileMemoryNotRegistered);
    CHECK_IO(hipFileRead(file, device + 8192, 8192, 0, 0), 8192);
    CHECK_OK(hipFileBufDeregister(device + 8192));
    CHECK_OK(hipFileBufDeregister(device + 4097));
    CHECK_OK(hipFileBufDeregister(device + 4096));
}

/* The exact base pointer keeps the registered length as its bound; other pointers have the allocation's. */
static void bounds(char *device, hipFileHandle_t file)
{
    CHECK_OK(hipFileBufRegister(device, 4096, 0));
    CHECK_IO(hipFileRead(file, device, 4096, 0, 0), 4096);
    CHECK_IO(hipFileRead(file, device, 4097, 0, 0), -hipFileInvalidValue);
    CHECK_IO(hipFileRead(file, device, 1, 0, 4095), 1);
    CHECK_IO(hipFileRead(file, device, 2, 0, 4095), -hipFileInvalidValue);
    CHECK_IO(hipFileRead(file, device, 1, 0, 4096), -hipFileInvalidValue);
    CHECK_IO(hipFileRead(file, device, 0, 0, 4096), -hipFileInvalidValue);
    CHECK_IO(hipFileWrite(file, device, 4097, 0, 0), -hipFileInvalidValue);
    /* Out of the registration, inside the allocation. */
    CHECK_IO(hipFileRead(file, device + 4096, 4096, 0, 0), 4096);
    CHECK_IO(hipFileRead(file, device + 2048, 4096, 0, 0), 4096);
    CHECK_IO(hipFileRead(file, device + 1, SIZE - 1, 0, 0), SIZE - 1);
    CHECK_IO(hipFileRead(file, device + 1, SIZE, 0, 0), -hipFileInvalidValue);
    CHECK_OK(hipFileBufDeregister(device));

    /* Length 0 registers, and then serves nothing. */
    CHECK_OK(hipFileBufRegister(device, 0, 0));
    CHECK_CODE(hipFileBufRegister(device, 0, 0), hipFileMemoryAlreadyRegistered);
    CHECK_IO(hipFileRead(file, device, 0, 0, 0), -hipFileInvalidValue);
    CHECK_IO(hipFileRead(file, device, 1, 0, 0), -hipFileInvalidValue);
    CHECK_IO(hipFileWrite(file, device, 1, 0, 0), -hipFileInvalidValue);
    CHECK_OK(hipFileBufDeregister(device));

    /* Unregistered again: the allocation's bounds, for the base too. */
    CHECK_IO(hipFileRead(file, device, SIZE, 0, 0), SIZE);
    CHECK_IO(hipFileRead(file, device, SIZE + 1, 0, 0), -hipFileInvalidValue);
    CHECK_IO(hipFileRead(file, device, SIZE - 4096, 0, 4096), SIZE - 4096);
    CHECK_IO(hipFileRead(file, device, SIZE, 0, 4096), -hipFileInvalidValue);
    CHECK_IO(hipFileRead(file, device + 4096, SIZE - 4096, 0, 0), SIZE - 4096);
    CHECK_IO(hipFileRead(file, device + 4096, SIZE, 0, 0), -hipFileInvalidValue);
    CHECK_IO(hipFileRead(file, device + SIZE - 1, 1, 0, 0), 1);
}

static void many(void)
{
    enum { COUNT = 500 };
    char *device = dev_alloc(COUNT * 512);
    for (int i = 0; i < COUNT; i++)
        CHECK_OK(hipFileBufRegister(device + i * 512, 512, 0));
    for (int i = 0; i < COUNT; i++)
        CHECK_CODE(hipFileBufRegister(device + i * 512, 512, 0), hipFileMemoryAlreadyRegistered);
    for (int i = COUNT - 1; i >= 0; i -= 2)
        CHECK_OK(hipFileBufDeregister(device + i * 512));
    for (int i = 0; i < COUNT; i += 2)
        CHECK_OK(hipFileBufDeregister(device + i * 512));
    CHECK_HIP(hipFree(device));
}

int main(void)
{
    char *device = dev_alloc(SIZE);
    codes(device);
    other_memory();

    make_file("data", 2 * SIZE, 9);
    const int fd = open_file("data", O_RDWR);
    hipFileHandle_t file = register_fd(fd);
    interior_and_overlapping(device, file);
    bounds(device, file);
    many();
    hipFileHandleDeregister(file);
    CHECK_EQ(close(fd), 0);
    close_driver_fully();
    CHECK_HIP(hipFree(device));
    puts("OK buffers");
    return 0;
}
