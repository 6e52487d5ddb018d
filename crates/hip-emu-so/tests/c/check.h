/*
 * check.h - what the programs here share: a check that names what failed and ends the program.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef CHECK_H
#define CHECK_H

#include <hip/hip_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);       \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define OK(call)                                                                          \
    do {                                                                                  \
        hipError_t code_ = (call);                                                        \
        if (code_ != hipSuccess) {                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, hipGetErrorName(code_)); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#endif
