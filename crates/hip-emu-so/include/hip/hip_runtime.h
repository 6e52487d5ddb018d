/*
 * hip/hip_runtime.h - header of hipfile's emulated GPU, not AMD's: the host side of HIP.
 *
 * The emulation has no device compiler, so what AMD's header of this name adds for kernels is absent.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIP_INCLUDE_HIP_HIP_RUNTIME_H
#define HIP_INCLUDE_HIP_HIP_RUNTIME_H

#include <hip/hip_runtime_api.h>

#endif
