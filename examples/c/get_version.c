/*
 * get_version: which hipFile this program was compiled for, and which it runs with.
 *
 * hipFileGetVersion needs no GPU and opens no driver. The major number is part of the library's soname, so a
 * difference there cannot start; an older minor number may lack functions the header promised.
 */
#include "common.h"

int main(int argc, char **argv)
{
    if (argc != 1) {
        fprintf(stderr, "usage: %s\n", argv[0]);
        return 2;
    }

    unsigned major = 0;
    unsigned minor = 0;
    unsigned patch = 0;
    CHECK_HIPFILE(hipFileGetVersion(&major, &minor, &patch));

    /* Each pointer may be NULL when that part is of no interest. */
    unsigned again = 0;
    CHECK_HIPFILE(hipFileGetVersion(NULL, &again, NULL));
    if (again != minor)
        DIE("minor version read as %u, then as %u", minor, again);

    printf("header  %d.%d.%d\n", HIPFILE_VERSION_MAJOR, HIPFILE_VERSION_MINOR, HIPFILE_VERSION_PATCH);
    printf("library %u.%u.%u\n", major, minor, patch);

    if (major != (unsigned)HIPFILE_VERSION_MAJOR)
        DIE("the library has another ABI than the header");
    if (minor < (unsigned)HIPFILE_VERSION_MINOR)
        DIE("the library is older than the header");
    puts("OK the library serves what the header declares");
    return 0;
}
