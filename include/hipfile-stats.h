/*
 * hipfile-stats.h - reads the statistics of another process that uses hipfile.
 *
 * For tools. The rules at the top of hipfile.h hold here too. Needs no GPU header.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIPFILE_STATS_H
#define HIPFILE_STATS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HIPFILE_API
#if defined(__GNUC__)
#define HIPFILE_API __attribute__((visibility("default")))
#else
#define HIPFILE_API
#endif
#endif

/**
 * @defgroup stats_client Statistics of another process
 * @{
 */

/** What a call came to. */
typedef enum hipFileStatsError {
    hipFileStatsSuccess = 0,
    hipFileStatsInvalidArgument = 1,            /**< NULL, or a number out of range */
    hipFileStatsTargetProcessNotFound = 2,      /**< no such process */
    hipFileStatsTargetProcessNotAccessible = 3, /**< it cannot be asked, or does not use hipfile */
    hipFileStatsReportGenerationFailed = 4      /**< no report: not connected, or writing it failed */
} hipFileStatsError_t;

/** A connection to one process. Opaque. One thread at a time may use it. */
typedef struct hipFileStatsContext hipFileStatsContext_t;

/**
 * Prepares to ask a process. It need not use hipfile yet.
 *
 * @param[out] ctx   receives the connection, to be closed with hipFileStatsCloseContext; NULL on failure
 * @param targetPid  the process, > 0
 * @return hipFileStatsInvalidArgument: ctx is NULL or targetPid is not positive. hipFileStatsTargetProcessNotFound: there is no
 *         such process. hipFileStatsTargetProcessNotAccessible: it cannot be watched.
 */
HIPFILE_API hipFileStatsError_t hipFileStatsCreateContext(hipFileStatsContext_t **ctx, int targetPid);

/**
 * Ends a connection and frees it.
 *
 * @param ctx  the connection; NULL does nothing
 */
HIPFILE_API void hipFileStatsCloseContext(hipFileStatsContext_t *ctx);

/**
 * Connects to the process. Blocks until it answers or has ended.
 *
 * @param ctx  the connection
 * @return hipFileStatsInvalidArgument: ctx is NULL. hipFileStatsTargetProcessNotAccessible: it has ended, belongs to another
 *         user, or its answer is malformed.
 */
HIPFILE_API hipFileStatsError_t hipFileStatsConnectToTargetProcess(hipFileStatsContext_t *ctx);

/**
 * Asks whether the process has ended.
 *
 * @param ctx    the connection
 * @param block  true: Blocks until it has ended
 * @return Success: it has ended. hipFileStatsInvalidArgument: ctx is NULL. hipFileStatsTargetProcessNotAccessible: it is still
 *         running.
 */
HIPFILE_API hipFileStatsError_t hipFileStatsPollTargetProcess(const hipFileStatsContext_t *ctx, bool block);

/**
 * Writes a report for people, of what the process has counted so far, or had when it ended. Blocks until it is written.
 *
 * @param ctx  the connection
 * @param fd   a descriptor open for writing, >= 0
 * @return hipFileStatsInvalidArgument: ctx is NULL or fd is negative. hipFileStatsReportGenerationFailed: not connected, the
 *         statistics are malformed, or writing failed.
 */
HIPFILE_API hipFileStatsError_t hipFileStatsGenerateReport(const hipFileStatsContext_t *ctx, int fd);

/** @} */

#ifdef __cplusplus
}
#endif

#endif /* HIPFILE_STATS_H */
