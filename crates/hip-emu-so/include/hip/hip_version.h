/*
 * hip/hip_version.h - header of hipfile's emulated GPU, not AMD's: the version of HIP that it follows.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIP_VERSION_H
#define HIP_VERSION_H

#define HIP_VERSION_MAJOR 7
#define HIP_VERSION_MINOR 14
#define HIP_VERSION_PATCH 60850

/* What hipRuntimeGetVersion() reports, unless the emulation is told to report another version. */
#define HIP_VERSION (HIP_VERSION_MAJOR * 10000000 + HIP_VERSION_MINOR * 100000 + HIP_VERSION_PATCH)

#endif
