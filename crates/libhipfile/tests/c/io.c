/*
 * io: the bytes. Every destination lies between guards, every case runs on a buffered and a direct descriptor of a
 * file and on a memory file, with the buffer registered and not.
 */
#include <sys/mman.h>

#include "device.h"

enum { GUARD = 4096 };

/* Where the end of the file cuts a read. */
static void behaviour_8_end_of_file(int fd, char *device)
{
    enum { FILE_SIZE = 10000, ROOM = 32768 };
    unsigned char bytes[FILE_SIZE];
    pattern(bytes, sizeof bytes, 1);
    CHECK_EQ(ftruncate(fd, 0), 0);
    hipFileHandle_t file = register_fd(fd);
    CHECK_IO(hipFileRead(file, device, 4096, 0, 0), 0);
    dev_put(device, bytes, sizeof bytes);
    CHECK_IO(hipFileWrite(file, device, sizeof bytes, 0, 0), sizeof bytes);

    const struct {
        size_t size;
        hoff_t at;
        ssize_t count;
    } cases[] = {
        { 16384, 0, 10000 }, { 4096, 8192, 1808 },    { 1, 10000, 0 },         { 1, (hoff_t)1 << 40, 0 },
        { 1, 9999, 1 },      { 2, 9999, 1 },          { 10000, 0, 10000 },     { 10001, 0, 10000 },
        { 1808, 8192, 1808 }, { 1809, 8192, 1808 },   { 4096, 10000, 0 },      { 4096, 12288, 0 },
        { 4096, 4097, 4096 }, { 16384, 9000, 1000 },  { 512, 9728, 272 },      { 0, 9999, 0 },
        { 1, ((hoff_t)1 << 32) + 5, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dev_poison(device, ROOM);
        CHECK_IO(hipFileRead(file, device + 4096, cases[i].size, cases[i].at, 0), cases[i].count);
        CHECK_POISON(device, 4096);
        if (cases[i].count > 0)
            CHECK_DEVICE(device + 4096, bytes + cases[i].at, (size_t)cases[i].count);
        CHECK_POISON(device + 4096 + cases[i].count, ROOM - 4096 - (size_t)cases[i].count);
    }

    hipFileHandleDeregister(file);
}

/* All the sizes and offsets around the borders at which an implementation changes its way. */
static void matrix(int fd, char *device, uint64_t seed)
{
    static const size_t sizes[] = { 1, 511, 512, 513, 4095, 4096, 4097, 65535, 65536, 65537 };
    static const size_t file_offsets[] = { 0, 1, 511, 4096, 4097 };
    static const size_t buffer_offsets[] = { 0, 1, 513, 4096 };
    enum { MODEL = 3 * 65536 };
    unsigned char *model = host_alloc(MODEL);
    unsigned char *source = host_alloc(MODEL);

    memset(model, 0, MODEL);
    CHECK_EQ(ftruncate(fd, 0), 0);
    CHECK_EQ(ftruncate(fd, MODEL), 0);
    hipFileHandle_t file = register_fd(fd);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t f = 0; f < sizeof file_offsets / sizeof file_offsets[0]; f++)
            for (size_t b = 0; b < sizeof buffer_offsets / sizeof buffer_offsets[0]; b++) {
                const size_t size = sizes[s], at = file_offsets[f], from = buffer_offsets[b];
                const size_t room = from + size + GUARD;

                /* Write a piece of the pattern; the rest of the file keeps its bytes. */
                pattern(source, room, ++seed);
                dev_put(device, source, room);
                CHECK_IO(hipFileWrite(file, device, size, (hoff_t)at, (hoff_t)from), size);
                memcpy(model + at, source + from, size);

                /* Read it back with its surroundings, to an odd place between guards. */
                const size_t start = at >= 100 ? at - 100 : 0;
                const size_t len = size + 200;
                dev_poison(device, GUARD + from + len + GUARD);
                CHECK_IO(hipFileRead(file, device + GUARD, len, (hoff_t)start, (hoff_t)from), len);
                CHECK_POISON(device, GUARD + from);
                CHECK_DEVICE(device + GUARD + from, model + start, len);
                CHECK_POISON(device + GUARD + from + len, GUARD);
            }
    hipFileHandleDeregister(file);

    dev_poison(device, MODEL);
    file = register_fd(fd);
    CHECK_IO(hipFileRead(file, device, MODEL, 0, 0), MODEL);
    CHECK_DEVICE(device, model, MODEL);
    hipFileHandleDeregister(file);
    free(source);
    free(model);
}

/* One byte far behind the end of an empty file. */
static void behaviour_13_one_byte_after_a_hole(int fd, char *device)
{
    enum { HOLE = 1024 * 1024 + 1 };
    unsigned char *expected = host_alloc(HOLE + 1);
    memset(expected, 0, HOLE);
    expected[HOLE] = 0x5c;
    CHECK_EQ(ftruncate(fd, 0), 0);
    hipFileHandle_t file = register_fd(fd);
    dev_poison(device, 3 * GUARD);
    dev_put(device + GUARD, &expected[HOLE], 1);
    CHECK_IO(hipFileWrite(file, device, 1, HOLE, GUARD), 1);
    CHECK_EQ(size_of(fd), HOLE + 1);
    CHECK_POISON(device, GUARD);
    CHECK_POISON(device + GUARD + 1, GUARD);

    dev_poison(device, HOLE + 1 + 2 * GUARD);
    CHECK_IO(hipFileRead(file, device + GUARD, HOLE + 2, 0, 0), HOLE + 1);
    CHECK_POISON(device, GUARD);
    CHECK_DEVICE(device + GUARD, expected, HOLE + 1);
    CHECK_POISON(device + GUARD + HOLE + 1, GUARD);
    hipFileHandleDeregister(file);
    free(expected);
}

/* A pointer anywhere in an allocation means exactly that address. */
static void behaviour_15_odd_device_addresses(int fd, char *device)
{
    enum { LEN = 10007, ROOM = 131072 };
    static const size_t places[] = { 1, 2, 63, 4095, 4096, 4097, 65535, 65536, 65537, 100001 };
    unsigned char bytes[LEN], ones[LEN];
    pattern(bytes, LEN, 7);
    CHECK_EQ(ftruncate(fd, 0), 0);
    hipFileHandle_t file = register_fd(fd);
    dev_put(device, bytes, LEN);
    CHECK_IO(hipFileWrite(file, device, LEN, 0, 0), LEN);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char *at = device + places[i];
        dev_poison(device, ROOM);
        CHECK_IO(hipFileRead(file, at, LEN, 0, 0), LEN);
        CHECK_POISON(device, places[i]);
        CHECK_DEVICE(at, bytes, LEN);
        CHECK_POISON(at + LEN, ROOM - places[i] - LEN);

        memset(ones, (int)i + 1, LEN);
        dev_put(at, ones, LEN);
        CHECK_IO(hipFileWrite(file, at, LEN, LEN, 0), LEN);
        CHECK_IO(hipFileRead(file, device, LEN, LEN, 0), LEN);
        CHECK_DEVICE(device, ones, LEN);
    }
    hipFileHandleDeregister(file);
}

/* Written data is there for every other reader at once, and the other way round. */
static void seen_by_others(int fd, char *device)
{
    enum { LEN = 12288 };
    unsigned char bytes[LEN], now[LEN];
    unsigned char *aligned = NULL;
    CHECK_EQ(posix_memalign((void **)&aligned, 4096, LEN), 0);
    CHECK_EQ(ftruncate(fd, 0), 0);
    CHECK_EQ(ftruncate(fd, LEN), 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int buffered = open(path, O_RDWR | O_CLOEXEC);
    CHECK(buffered != -1);
    const int direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    unsigned char *mapped = (unsigned char *)mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, buffered, 0);
    CHECK(mapped != MAP_FAILED);
    hipFileHandle_t file = register_fd(fd);
    memset(bytes, 0, LEN);

    for (uint64_t round = 0; round < 6; round++) {
        /* What HIP last put into device memory is what is written. */
        const size_t at = round % 2 == 0 ? 4096 : 4000;
        const size_t len = round % 2 == 0 ? 4096 : 4321;
        pattern(bytes + at, len, 20 + round);
        dev_put(device, bytes + at, len);
        CHECK_IO(hipFileWrite(file, device, len, (hoff_t)at, 0), len);
        CHECK_EQ(pread(buffered, now, LEN, 0), LEN);
        CHECK_BYTES(now, bytes, LEN);
        CHECK_BYTES(mapped, bytes, LEN);
        if (direct != -1) {
            CHECK_EQ(pread(direct, aligned, LEN, 0), LEN);
            CHECK_BYTES(aligned, bytes, LEN);
        }

        /* Others write, hipFile reads. */
        pattern(bytes + 100, 50, 40 + round);
        CHECK_EQ(pwrite(buffered, bytes + 100, 50, 100), 50);
        CHECK_IO(hipFileRead(file, device, LEN, 0, 0), LEN);
        CHECK_DEVICE(device, bytes, LEN);
        bytes[8192] = mapped[8192] = (unsigned char)(round + 1);
        CHECK_IO(hipFileRead(file, device, LEN, 0, 0), LEN);
        CHECK_DEVICE(device, bytes, LEN);
        if (direct != -1) {
            pattern(bytes + 8192, 4096, 60 + round);
            memcpy(aligned, bytes + 8192, 4096);
            CHECK_EQ(pwrite(direct, aligned, 4096, 8192), 4096);
            CHECK_IO(hipFileRead(file, device, LEN, 0, 0), LEN);
            CHECK_DEVICE(device, bytes, LEN);
        }
    }
    hipFileHandleDeregister(file);
    CHECK_EQ(munmap(mapped, LEN), 0);
    if (direct != -1)
        CHECK_EQ(close(direct), 0);
    CHECK_EQ(close(buffered), 0);
    free(aligned);
}

/* O_APPEND: the kernel ignores the offset, every write lands whole at the end. */
static void append(char *device)
{
    enum { LEN = 5000, PIECES = 6 };
    unsigned char expected[PIECES * LEN], now[PIECES * LEN + 1];
    for (int direct = 0; direct < 2; direct++) {
        const int fd = open("append", O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | (direct ? O_DIRECT : 0), 0644);
        if (fd == -1) {
            SKIP("O_APPEND with O_DIRECT", "this file system has no O_DIRECT");
            return;
        }
        const int plain = open_file("append", O_RDONLY);
        hipFileHandle_t file = register_fd(fd);
        for (int i = 0; i < PIECES; i++) {
            pattern(expected + i * LEN, LEN, (uint64_t)(80 + i));
            dev_put(device, expected + i * LEN, LEN);
            const hoff_t offsets[] = { 0, 4096, 1, 1 << 20, 5000, 0 };
            CHECK_IO(hipFileWrite(file, device, LEN, offsets[i], 0), LEN);
            CHECK_EQ(size_of(plain), (i + 1) * LEN);
        }
        CHECK_EQ(pread(plain, now, sizeof now, 0), PIECES * LEN);
        CHECK_BYTES(now, expected, sizeof expected);
        CHECK_IO(hipFileRead(file, device, LEN, LEN, 0), LEN);
        CHECK_DEVICE(device, expected + LEN, LEN);
        hipFileHandleDeregister(file);
        CHECK_EQ(close(plain), 0);
        CHECK_EQ(close(fd), 0);
    }
}

/* Larger than one piece of any engine, at odd places. */
static void many_pieces(int fd, char *device, size_t room)
{
    const size_t len = room - 3 * GUARD - 5;
    unsigned char *bytes = host_alloc(len);
    pattern(bytes, len, 99);
    CHECK_EQ(ftruncate(fd, 0), 0);
    hipFileHandle_t file = register_fd(fd);
    dev_put(device + 5, bytes, len);
    CHECK_IO(hipFileWrite(file, device, len, 77, 5), len);
    CHECK_EQ(size_of(fd), 77 + len);
    dev_poison(device, room);
    CHECK_IO(hipFileRead(file, device + GUARD, len + 1000, 77, 3), len);
    CHECK_POISON(device, GUARD + 3);
    CHECK_DEVICE(device + GUARD + 3, bytes, len);
    CHECK_POISON(device + GUARD + 3 + len, room - GUARD - 3 - len);
    hipFileHandleDeregister(file);
    free(bytes);
}

static void run(int fd, char *device, size_t room)
{
    behaviour_8_end_of_file(fd, device);
    matrix(fd, device, 1000);
    behaviour_13_one_byte_after_a_hole(fd, device);
    behaviour_15_odd_device_addresses(fd, device);
    seen_by_others(fd, device);
    many_pieces(fd, device, room);
    CHECK_EQ(close(fd), 0);
}

int main(void)
{
    const size_t room = (size_t)20 << 20;
    char *device = dev_alloc(room);
    CHECK_OK(hipFileDriverOpen());
    run(open_file("buffered", O_RDWR | O_CREAT | O_TRUNC), device, room);
    run(memfd_create("io", MFD_CLOEXEC), device, room);
    const int direct = open("direct", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0644);
    if (direct == -1)
        SKIP("I/O on an O_DIRECT descriptor", "this file system has no O_DIRECT");
    else
        run(direct, device, room);
    append(device);

    /* The same once more through a registration. */
    CHECK_OK(hipFileBufRegister(device, room, 0));
    run(open_file("buffered", O_RDWR | O_CREAT | O_TRUNC), device, room);
    append(device);
    CHECK_OK(hipFileBufDeregister(device));
    close_driver_fully();
    CHECK_HIP(hipFree(device));
    puts("OK io");
    return 0;
}
