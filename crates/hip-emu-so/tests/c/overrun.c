/*
 * overrun.c - writes one byte past pinned memory of one page: it must fault there, not spoil what lies beside.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "check.h"

int main(void) {
    void *at = NULL;
    volatile char *pinned;

    OK(hipHostMalloc(&at, 4096, hipHostMallocDefault));
    pinned = at;
    pinned[0] = 1;
    pinned[4095] = 1;
    puts("touching");
    fflush(stdout);
    pinned[4096] = 1;
    puts("lived");
    return 0;
}
