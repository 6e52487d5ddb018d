/* control MODE: commits one fault on purpose. Not a test of the library but of the tools that watch the others. */
#include "check.h"

static int undefined(void)
{
    volatile unsigned char *bytes = host_alloc(64);
    int sum = 0;
    if (bytes[1] == 3)
        sum = 1;
    free((void *)bytes);
    return sum;
}

/* Not inlined, so that no register still holds the address afterwards. */
static __attribute__((noinline)) void leak(void)
{
    unsigned char *volatile bytes = host_alloc(1234);
    memset((void *)bytes, 1, 1234);
    bytes = NULL;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    volatile int outside = argc + 62;
    int sum = 0;
    if (strcmp(mode, "heap") == 0) {
        unsigned char *bytes = host_alloc(64);
        memset(bytes, 0, 64);
        sum = ((volatile unsigned char *)bytes)[outside];
        free(bytes);
    } else if (strcmp(mode, "stack") == 0) {
        volatile unsigned char bytes[64] = { 0 };
        sum = bytes[outside];
        bytes[outside - 1] = 1;
    } else if (strcmp(mode, "undefined") == 0) {
        sum = undefined();
    } else if (strcmp(mode, "leak") == 0) {
        leak();
    }
    if (hipFileUseCount() != 0)
        sum = 100;
    printf("OK control %d\n", sum);
    return 0;
}
