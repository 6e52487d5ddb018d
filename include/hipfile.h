/*
 * hipfile.h - moves data between files and GPU memory.
 *
 * This is the C interface of hipfile, an independent implementation of the hipFile ABI. Names, values and
 * layouts are those of hipFile 0.5, so that a program built for one library runs on the other. What this
 * library adds is in hipfile_ext.h; this header holds the common interface only.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIPFILE_H
#define HIPFILE_H

/*
 * General rules. They hold for every function unless its own comment says otherwise.
 *
 * Units.      Sizes and offsets are bytes. Where a value is counted in KiB (1024 bytes) the comment says so.
 * Threads.    Every function may be called from any thread, also while other threads are inside the library.
 * Blocking.   Only the functions whose comment says "Blocks" wait for I/O or for the GPU. The others return
 *             promptly: they take short locks and may make system calls, but wait for no transfer.
 * errno.      Left as it was found, except when hipFileRead or hipFileWrite return -1.
 * Errors.     A function that returns hipFileError_t has succeeded exactly when .err is hipFileSuccess.
 *             .hip_drv_err is zero unless .err is hipFileHipDriverError; then it holds the GPU runtime's code.
 *             A failure without a code of its own is hipFileInternalError; hipFileExtLastError() (hipfile_ext.h)
 *             gives the reason in words.
 * Pointers.   Memory passed to a function is used during the call only, unless the comment says that it must
 *             stay valid longer. Device memory is never touched by the CPU.
 * fork.       The child of a fork inherits nothing: the use count there is zero, handles and registrations of
 *             the parent are unknown, and hipFileDriverOpen() starts afresh. The parent is not affected.
 * Exit.       Nothing has to be released before the process ends.
 *
 * GPU types.  With __HIP_PLATFORM_AMD__ or __HIP_PLATFORM_NVIDIA__ defined, HIP's own header is included and
 *             provides hipError_t and hipStream_t. Otherwise, or with HIPFILE_NO_HIP defined, both are declared
 *             here with the same size and calling convention, and no GPU header is needed. A file that wants
 *             HIP's own types must therefore define the platform macro, or include HIP's header first. Where a
 *             header of CUDA was included first, hipStream_t is cudaStream_t and CUstream, and no cast is needed;
 *             a stream of CUDA may be cast to it anywhere.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#if (defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_NVIDIA__)) && !defined(HIPFILE_NO_HIP)
#include <hip/hip_runtime_api.h>
#elif !defined(HIP_INCLUDE_HIP_HIP_RUNTIME_API_H)
/* A GPU runtime's status code: the values of HIP's enumeration of this name, 0 for success. */
typedef int hipError_t;
/* A GPU stream, opaque. NULL is the default stream. */
#if defined(__CUDA_RUNTIME_H__) || defined(__CUDA_RUNTIME_API_H__) || defined(__cuda_cuda_h__)
typedef struct CUstream_st *hipStream_t;
#else
typedef struct ihipStream_t *hipStream_t;
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup version Version
 * @{
 */

/** Version of the interface that this header describes. hipFileGetVersion() tells that of the library. */
#define HIPFILE_VERSION_MAJOR 0
#define HIPFILE_VERSION_MINOR 5
#define HIPFILE_VERSION_PATCH 0

/** @} */

/* Marks what the shared library exports. */
#if defined(__GNUC__)
#define HIPFILE_API __attribute__((visibility("default")))
#else
#define HIPFILE_API
#endif

/* Asks the compiler to warn when an error is dropped. Undefined again at the end of this header. */
#if defined(__cplusplus)
#if __cplusplus >= 201703L
#define __HIPFILE_NODISCARD [[nodiscard]]
#endif
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ > 201710L
#define __HIPFILE_NODISCARD [[nodiscard]]
#endif
#ifndef __HIPFILE_NODISCARD
#define __HIPFILE_NODISCARD
#endif

/**
 * @defgroup error Errors
 * @{
 */

/** hipFile's own codes lie above this number, the GPU runtime's below it. */
#define HIPFILE_BASE_ERR 5000

/**
 * What a call came to. Every name belongs to the interface; the comment says when this library returns it.
 * "Reserved" names are never returned today.
 */
typedef enum hipFileOpError {
    /** The call did what it was asked to do. */
    hipFileSuccess = 0,
    /** The driver is not open. */
    hipFileDriverNotInitialized = HIPFILE_BASE_ERR + 1,
    /** Reserved: the driver's properties are invalid. */
    hipFileDriverInvalidProps = HIPFILE_BASE_ERR + 2,
    /** A driver setting lies outside its range. */
    hipFileDriverUnsupportedLimit = HIPFILE_BASE_ERR + 3,
    /** Reserved: library and kernel driver have different versions. */
    hipFileDriverVersionMismatch = HIPFILE_BASE_ERR + 4,
    /** Reserved: the kernel driver's version cannot be read. */
    hipFileDriverVersionReadError = HIPFILE_BASE_ERR + 5,
    /** The driver is closed or being closed. */
    hipFileDriverClosing = HIPFILE_BASE_ERR + 6,
    /** No GPU runtime is present on this machine. */
    hipFilePlatformNotSupported = HIPFILE_BASE_ERR + 7,
    /** This kind of I/O, or of file handle, is not offered; or bouncing is forbidden and nothing else can do it. */
    hipFileIONotSupported = HIPFILE_BASE_ERR + 8,
    /** Reserved: this GPU is not supported. */
    hipFileDeviceNotSupported = HIPFILE_BASE_ERR + 9,
    /** Reserved: the kernel driver failed. */
    hipFileDriverError = HIPFILE_BASE_ERR + 10,
    /** The GPU runtime failed; hip_drv_err holds its code. */
    hipFileHipDriverError = HIPFILE_BASE_ERR + 11,
    /** The pointer is no valid device pointer. */
    hipFileHipPointerInvalid = HIPFILE_BASE_ERR + 12,
    /** The pointer names memory of a kind that is not accepted (host, managed or array memory). */
    hipFileHipMemoryTypeInvalid = HIPFILE_BASE_ERR + 13,
    /** The range leaves the allocation that its pointer lies in. */
    hipFileHipPointerRangeError = HIPFILE_BASE_ERR + 14,
    /** Reserved: the wrong GPU context is current. */
    hipFileHipContextMismatch = HIPFILE_BASE_ERR + 15,
    /** Reserved: a mapping has the wrong size. */
    hipFileInvalidMappingSize = HIPFILE_BASE_ERR + 16,
    /** Reserved: a mapping has the wrong range. */
    hipFileInvalidMappingRange = HIPFILE_BASE_ERR + 17,
    /** The descriptor names something other than a file or block device: a pipe, a socket, a directory. */
    hipFileInvalidFileType = HIPFILE_BASE_ERR + 18,
    /** Reserved: the descriptor was opened with unsuitable flags. */
    hipFileInvalidFileOpenFlag = HIPFILE_BASE_ERR + 19,
    /** Reserved: the descriptor lacks O_DIRECT. This library does not need it. */
    hipFileDIONotSet = HIPFILE_BASE_ERR + 20,
    /* 5021 has no name. */
    /** An argument is NULL, out of range or inconsistent with another one. */
    hipFileInvalidValue = HIPFILE_BASE_ERR + 22,
    /** A buffer with exactly this pointer is registered already. */
    hipFileMemoryAlreadyRegistered = HIPFILE_BASE_ERR + 23,
    /** No buffer with this pointer is registered. */
    hipFileMemoryNotRegistered = HIPFILE_BASE_ERR + 24,
    /** Reserved: access denied. */
    hipFilePermissionDenied = HIPFILE_BASE_ERR + 25,
    /** The driver is open, and this can be changed only while it is closed. */
    hipFileDriverAlreadyOpen = HIPFILE_BASE_ERR + 26,
    /** The handle is unknown: never registered, deregistered, or from before the driver was closed. */
    hipFileHandleNotRegistered = HIPFILE_BASE_ERR + 27,
    /** This descriptor is registered already. */
    hipFileHandleAlreadyRegistered = HIPFILE_BASE_ERR + 28,
    /** Reserved: no such GPU. */
    hipFileDeviceNotFound = HIPFILE_BASE_ERR + 29,
    /** Something failed that has no code of its own, or the function is not available in this version. */
    hipFileInternalError = HIPFILE_BASE_ERR + 30,
    /** Reserved: no further descriptor could be opened. */
    hipFileGetNewFDFailed = HIPFILE_BASE_ERR + 31,
    /* 5032 has no name. */
    /** Reserved: the driver could not be set up. */
    hipFileDriverSetupError = HIPFILE_BASE_ERR + 33,
    /** Reserved: I/O is disabled. */
    hipFileIODisabled = HIPFILE_BASE_ERR + 34,
    /** Reserved: a batch could not be handed over. */
    hipFileBatchSubmitFailed = HIPFILE_BASE_ERR + 35,
    /** Reserved: GPU memory could not be pinned. */
    hipFileGPUMemoryPinningFailed = HIPFILE_BASE_ERR + 36,
    /** The batch has fewer free places than entries were submitted. */
    hipFileBatchFull = HIPFILE_BASE_ERR + 37,
    /** Stream operations are not possible here. */
    hipFileAsyncNotSupported = HIPFILE_BASE_ERR + 38,
    /** Marks the top of the range; no error. */
    hipFileIOMaxError = HIPFILE_BASE_ERR + 39
} hipFileOpError_t;

/** What most functions return. */
typedef struct __HIPFILE_NODISCARD hipFileError {
    hipFileOpError_t err;   /**< hipFileSuccess, or what went wrong */
    hipError_t hip_drv_err; /**< the GPU runtime's code if err is hipFileHipDriverError, else zero */
} hipFileError_t;

/** True if the number, or its negative, is one of hipFile's own codes. Meant for errors, not for byte counts. */
#define IS_HIPFILE_ERR(e) (abs((int)(e)) > HIPFILE_BASE_ERR)

/** The text for a code given as a positive or negative number. */
#define HIPFILE_ERRSTR(e) hipFileGetOpErrorString((hipFileOpError_t)abs((int)(e)))

/** True if a hipFileError_t carries a code of the GPU runtime. */
#ifndef IS_HIP_DRV_ERR
#define IS_HIP_DRV_ERR(e) ((e).err == hipFileHipDriverError)
#endif

/** The GPU runtime's code in a hipFileError_t. */
#ifndef HIP_DRV_ERR
#define HIP_DRV_ERR(e) ((e).hip_drv_err)
#endif

/**
 * Describes a code in words.
 *
 * Any number may be passed. The text of a negative number is that of its positive twin, so the result of
 * hipFileRead or hipFileWrite may be passed as it is; a number that is no code of hipFile (a GPU runtime's,
 * say) gives one common text.
 *
 * @param status  the code
 * @return a static string, never NULL, not to be freed. Cannot fail. Opens nothing.
 */
HIPFILE_API const char *hipFileGetOpErrorString(hipFileOpError_t status);

/** @} */

/**
 * @defgroup driver Driver
 *
 * The driver is the process-wide state: registered files, buffers and streams. It is counted. Opening adds one,
 * closing takes one away, and at zero all registrations of files and buffers end. hipFileHandleRegister,
 * hipFileBufRegister, hipFileReadAsync and hipFileWriteAsync open a closed driver by themselves (the count goes
 * from zero to one, once); whoever relies on that and wants the driver closed must call hipFileDriverClose too.
 * @{
 */

/** Bit numbers in hipFileDriverProps_t::nvfs.driver_status_flags: storage that can be reached without bouncing. */
typedef enum hipFileDriverStatusFlags {
    hipFileLustreSupported = 0,
    hipFileWekaFSSupported = 1,
    hipFileNFSSupported = 2,
    hipFileGPFSSupported = 3,
    hipFileNVMeSupported = 4,
    hipFileNVMeoFSupported = 5,
    hipFileSCSISupported = 6,
    hipFileScaleFluxCSDSupported = 7,
    hipFileNVMeshSupported = 8,
    hipFileBeeGFSSupported = 9,
    /* bit 10 has no name */
    hipFileNVMeP2PSupported = 11,
    hipFileScatefsSupported = 12
} hipFileDriverStatusFlags_t;

/** Bit numbers in hipFileDriverProps_t::nvfs.driver_control_flags. */
typedef enum hipFileDriverControlFlags {
    hipFileUsePollMode = 0,    /**< completion by polling */
    hipFileAllowCompatMode = 1 /**< bouncing through host memory is allowed */
} hipFileDriverControlFlags_t;

/** Bit numbers in hipFileDriverProps_t::feature_flags. */
typedef enum hipFileFeatureFlags {
    hipFileDynRoutingSupported = 0,
    hipFileBatchIOSupported = 1,
    hipFileStreamsSupported = 2,
    hipFileParallelIOSupported = 3
} hipFileFeatureFlags_t;

/** What the driver can do and how it is set. Sizes are in KiB. */
typedef struct hipFileDriverProps {
    struct {
        unsigned int major_version;        /**< version of the kernel's part, 0 if there is none */
        unsigned int minor_version;
        uint64_t poll_thresh_size;         /**< KiB: requests up to this size are polled for */
        uint64_t max_direct_io_size;       /**< KiB: largest piece of one direct transfer */
        unsigned int driver_status_flags;  /**< bits of hipFileDriverStatusFlags_t */
        unsigned int driver_control_flags; /**< bits of hipFileDriverControlFlags_t */
    } nvfs;
    unsigned int feature_flags;              /**< bits of hipFileFeatureFlags_t */
    uint64_t max_device_cache_size;          /**< KiB: staging memory, all together */
    uint64_t per_buffer_cache_size;          /**< KiB: staging memory, each piece */
    uint64_t max_device_pinned_mem_size;     /**< KiB: most memory that may be pinned */
    unsigned int max_batch_io_count;         /**< entries: most for one batch */
    unsigned int max_batch_io_timeout_msecs; /**< milliseconds: longest time a batch entry may take */
} hipFileDriverProps_t;

/**
 * Opens the driver: adds one to the use count.
 *
 * Looks for no GPU and loads no GPU runtime; that happens at the first registration or I/O that needs one. The
 * environment is read when the count leaves zero, also by implicit opening; later changes count at the next opening.
 *
 * @return hipFileSuccess, also on a machine without any GPU. hipFileInternalError if the system lacks resources;
 *         the count is then unchanged.
 */
HIPFILE_API hipFileError_t hipFileDriverOpen(void);

/**
 * Takes one from the use count. When it reaches zero, all registered files and buffers are forgotten: their
 * handles are unknown from then on. Operations in flight end normally. Registered streams stay registered.
 * Descriptors and device memory of the caller are not touched.
 *
 * @return hipFileSuccess; hipFileDriverNotInitialized if the count is zero already.
 */
HIPFILE_API hipFileError_t hipFileDriverClose(void);

/**
 * The driver's use count.
 *
 * @return the count, 0 if the driver is closed; -1 only after an internal failure. Opens nothing.
 */
HIPFILE_API int64_t hipFileUseCount(void);

/**
 * Tells the driver's properties: the settings as they are, or as they would be if the driver were opened now, and what
 * this machine has. Sizes are in KiB. The version is 0.0, since no kernel module of that kind is involved. It looks at
 * the kernel and the mounts and loads no GPU runtime.
 *
 * @param[out] props  receives them
 * @return hipFileSuccess; hipFileInvalidValue if props is NULL. Opens nothing.
 */
HIPFILE_API hipFileError_t hipFileDriverGetProperties(hipFileDriverProps_t *props);

/**
 * Chooses between polling and sleeping for completions: now if the driver is open, else for the next opening. The last
 * hipFileDriverClose forgets it.
 *
 * @param poll                 whether to poll
 * @param poll_threshold_size  KiB, a multiple of 4: only requests up to this size are polled for
 * @return hipFileSuccess; hipFileInvalidValue for a size that breaks the step; hipFileDriverUnsupportedLimit for one out
 *         of range. Opens nothing.
 */
HIPFILE_API hipFileError_t hipFileDriverSetPollMode(bool poll, size_t poll_threshold_size);

/**
 * Sets the largest piece of one direct transfer; a larger transfer goes in several. Now if the driver is open, else for
 * the next opening; the last hipFileDriverClose forgets it.
 *
 * @param max_direct_io_size  KiB, a multiple of 64, at least 64
 * @return As hipFileDriverSetPollMode.
 */
HIPFILE_API hipFileError_t hipFileDriverSetMaxDirectIOSize(size_t max_direct_io_size);

/**
 * Limits the staging memory: now if the driver is open, else for the next opening; the last hipFileDriverClose forgets
 * it. Memory beyond the limit is given back as it becomes free. Transfers never fail for it.
 *
 * @param max_cache_size  KiB, a multiple of 64, at least one staging Block
 * @return As hipFileDriverSetPollMode. A closed driver cannot know the size of a Block: too small a limit is raised to it
 *         when the driver opens, with a line on standard error.
 */
HIPFILE_API hipFileError_t hipFileDriverSetMaxCacheSize(size_t max_cache_size);

/**
 * Limits the memory that may be pinned, staging memory and that of streams included: now if the driver is open, else for
 * the next opening; the last hipFileDriverClose forgets it. The staging memory shrinks to fit, at most half is for streams.
 * Transfers never fail for it.
 *
 * @param max_pinned_size  KiB, a multiple of 64, at least two staging Blocks
 * @return As hipFileDriverSetMaxCacheSize.
 */
HIPFILE_API hipFileError_t hipFileDriverSetMaxPinnedMemSize(size_t max_pinned_size);

/** @} */

/**
 * @defgroup file File handles
 * @{
 */

/** An offset in a file or a buffer, in bytes. Signed; 64 bits. */
typedef off_t hoff_t;

/**
 * Describes GPU memory that is registered with an RDMA device, for the time of one call. What the description says no document
 * tells; here it is text of `name=value` words that docs/rdma.md lists.
 */
typedef struct hipFileRDMAInfo {
    int version;          /**< version of the description: 1 */
    int desc_len;         /**< bytes in desc_str, without the NUL at its end */
    const char *desc_str; /**< the description */
} hipFileRDMAInfo_t;

/** Bit of the flags of hipFileBufRegister. It has no effect: an RDMA device gets to know the memory when it is first to reach it. */
#define HIPFILE_RDMA_REGISTER 1
/** Bit of the flags of hipFileBufRegister: an RDMA device may write into the memory in another order than it was told to. */
#define HIPFILE_RDMA_RELAXED_ORDERING 2

/**
 * The functions of a file system that lives in the caller's process. The table is copied when a handle is registered; the
 * functions stay callable until it is deregistered, and until transfers under way are over if the driver is closed before.
 *
 * What `handle` is no document says; here it is the hipFileHandle_t, good from before fs_type is called (once, within
 * hipFileHandleRegister) until deregistration returns.
 *
 * read and write: the buffer is host memory, and info is NULL; GPU memory is staged, unless RDMA reaches it (below). A count of fewer bytes than asked for
 * is gone on from; a read of 0 bytes is the end of the file, a write of 0 bytes an error (EIO). -1 is the error that errno
 * names (EIO if none), -2 to -4095 is an errno negated, anything else negative or a count of more than was asked for is
 * EIO; EINTR is tried again. If read or write is NULL, the kernel's file of the descriptor is read or written instead.
 *
 * They are called on the thread that carries the transfer: the caller's for hipFileRead and hipFileWrite, else one of the
 * library's with all signals blocked; several at a time, for the same range too, unless hipFileExtHandleSetSerialized
 * says otherwise. They may block: who waits for the transfer, a GPU stream included, waits too. They must not start
 * transfers nor wait for one, must not call the GPU runtime on behalf of a stream, and must not unwind.
 *
 * RDMA: if getRDMADeviceList is given, it is called once, before the first transfer, and sets *hostaddrs to the first of an
 * array of so many struct sockaddr, which stays as it is until deregistration returns. An entry of AF_INET6 is as long as a struct
 * sockaddr_in6, and the next one begins behind it; entries of other families are passed over. Of the devices that this machine
 * has, getRDMADevicePriority chooses for each transfer: the highest answer, of equal ones the first, none that is negative;
 * without that function the first. The GPU memory is registered with the device, for the time of the call or, if it is registered
 * by hipFileBufRegister, until that ends, and read or write is called with info; the buffer is the address on the GPU then, which only names the memory, and a read may fill it up to size, counted from
 * the front. -1 with EOPNOTSUPP has the transfer staged instead, which also happens where a device or the registration is
 * missing, and for work in the order of a stream. The answers mean what they mean without RDMA, but that a short read is the end of the
 * file and a short write an error.
 */
typedef struct hipFileFSOps {
    /** The file system's type, as a static string. */
    const char *(*fs_type)(void *handle);
    /** The network addresses of the RDMA devices to use; returns their number. */
    int (*getRDMADeviceList)(void *handle, struct sockaddr **hostaddrs);
    /** How well an RDMA device suits a range of the file; negative if it does not. */
    int (*getRDMADevicePriority)(void *handle, char *buffer, size_t size, hoff_t offset, struct sockaddr *hostaddr);
    /** Reads from the file into host memory, or by RDMA if info is given. Bytes read, or negative. */
    ssize_t (*read)(void *handle, char *buffer, size_t size, hoff_t offset, hipFileRDMAInfo_t *info);
    /** Writes to the file from host memory, or by RDMA if info is given. Bytes written, or negative. */
    ssize_t (*write)(void *handle, const char *buffer, size_t size, hoff_t offset, hipFileRDMAInfo_t *info);
} hipFileFSOps_t;

/** What hipFileDescr_t::handle holds. */
typedef enum hipFileFileHandleType {
    hipFileHandleTypeOpaqueFD = 1,    /**< handle.fd: a file descriptor of this process */
    hipFileHandleTypeOpaqueWin32 = 2, /**< handle.hFile: a Windows handle. Not offered on Linux */
    hipFileHandleTypeUserspaceFS = 3  /**< fs_ops serves the file, and handle.fd stands for it */
} hipFileFileHandleType_t;

/** Names an open file. */
typedef struct hipFileDescr {
    hipFileFileHandleType_t type; /**< how to read the rest */
    union {
        int fd;      /**< for hipFileHandleTypeOpaqueFD and hipFileHandleTypeUserspaceFS */
        void *hFile; /**< for the other type */
    } handle;
    const hipFileFSOps_t *fs_ops; /**< for hipFileHandleTypeUserspaceFS; else not looked at */
} hipFileDescr_t;

/** A registered file. Opaque, never NULL; a stale or invented value is recognised and refused. */
typedef void *hipFileHandle_t;

/**
 * Registers an open file.
 *
 * Regular files on any file system and block devices are accepted, opened with or without O_DIRECT; how the data
 * will travel is decided by what the file can do, never by that flag. The descriptor is not changed: its flags
 * and position stay as they are, and it is never closed by the library. It must stay open until the handle is
 * deregistered. The library may open up to two more descriptors on the same file, later and only if they help;
 * while they live, the file's space and its mount stay in use and flock locks through them stay held.
 *
 * With hipFileHandleTypeUserspaceFS the functions of fs_ops serve the file. The descriptor must be open all the same; if
 * both read and write are given it may be of anything, for instance a memfd, and is neither read nor written.
 *
 * Opens a closed driver, but only once the descriptor has been accepted.
 *
 * @param[out] fh   receives the handle; untouched on failure
 * @param descr     names the file; may be freed after the call
 * @return hipFileSuccess, or, checked in this order:
 *         - hipFileInvalidValue: fh or descr is NULL;
 *         - hipFileIONotSupported: descr->type is neither hipFileHandleTypeOpaqueFD nor hipFileHandleTypeUserspaceFS;
 *         - hipFileInvalidValue: the type is hipFileHandleTypeUserspaceFS, and handle.fd is negative or fs_ops is NULL;
 *         - hipFileInternalError: the descriptor is not open, or the system failed;
 *         - hipFileInvalidFileType: it is a pipe, a socket or a directory (and not served by fs_ops both ways);
 *         - hipFileHandleAlreadyRegistered: this descriptor number is registered and still names the same file.
 *           If it names another file by now, the old registration is retired and the new one succeeds.
 */
HIPFILE_API hipFileError_t hipFileHandleRegister(hipFileHandle_t *fh, hipFileDescr_t *descr);

/**
 * Ends a registration. The library's own descriptors for the file are closed, the caller's is not.
 *
 * Does nothing if the handle is NULL or unknown, if the driver is closed, or while an operation on the file is in
 * flight. Opens nothing; the use count is unchanged.
 *
 * @param fh  the handle
 */
HIPFILE_API void hipFileHandleDeregister(hipFileHandle_t fh);

/** @} */

/**
 * @defgroup buffer Buffers
 * @{
 */

/**
 * Registers a range of device memory.
 *
 * Registration is optional: hipFileRead and hipFileWrite take any device pointer, and look it up at each call if
 * it is not registered. Ranges may overlap; the pointer may lie inside an allocation. The memory must not be freed
 * before it is deregistered. A range of length 0 can be registered, but no I/O on it succeeds.
 *
 * Opens a closed driver, also if the registration then fails. Loads the GPU runtime if none is loaded yet.
 * The first registration pins staging memory, for which the GPU runtime waits for work that is queued already: do not
 * make it while something that this thread must release holds a stream.
 *
 * @param buffer_base  start of the range, a device pointer
 * @param length       bytes
 * @param flags        HIPFILE_RDMA_* bits; others are kept, without effect
 * @return hipFileSuccess, or, checked in this order:
 *         - hipFileMemoryAlreadyRegistered: a buffer with exactly this pointer is registered;
 *         - hipFileInvalidValue: the pointer is NULL or unknown to the GPU runtime;
 *         - hipFileHipDriverError: the GPU runtime failed;
 *         - hipFileHipMemoryTypeInvalid: the memory is not device memory;
 *         - hipFileHipPointerRangeError: the range leaves its allocation;
 *         - hipFilePlatformNotSupported: no GPU runtime is present.
 */
HIPFILE_API hipFileError_t hipFileBufRegister(const void *buffer_base, size_t length, int flags);

/**
 * Ends a registration. The memory itself is not touched. Opens nothing.
 *
 * @param buffer_base  the pointer that was registered
 * @return hipFileSuccess, or
 *         - hipFileDriverClosing: the driver is closed;
 *         - hipFileMemoryNotRegistered: no buffer with this pointer is registered (also for NULL);
 *         - hipFileInternalError: an operation on it is in flight; it stays registered.
 */
HIPFILE_API hipFileError_t hipFileBufDeregister(const void *buffer_base);

/** @} */

/**
 * @defgroup io Synchronous I/O
 *
 * Any offset, size and pointer is accepted, aligned or not.
 *
 * One call moves at most 0x7ffff000 bytes (2,147,479,552: the kernel's own limit for one read or write). A larger
 * size is cut to that, not refused; loop over the rest.
 *
 * Results: a count of bytes, zero or more; -1 with errno set for an error of the operating system;
 * -(a hipFileOpError_t) for one of hipFile's own; -(a hipError_t) for one of the GPU runtime, errno unchanged.
 * Since hipErrorInvalidValue is 1, a caller that must tell -1 apart sets errno to 0 first.
 *
 * The calls run after work that is already on the legacy default stream of the buffer's device, as a blocking copy
 * does. They are not ordered with other streams: synchronise those first. The calling thread's current device is
 * the same afterwards.
 * @{
 */

/**
 * Reads from a file into device memory. Blocks until the data is in place.
 *
 * @param fh             the file
 * @param buffer_base    device pointer, registered or not. If not registered as it stands: any pointer into a
 *                       registered range, or into an allocation
 * @param size           bytes to read, at most what the buffer holds behind buffer_offset; 0 reads nothing and
 *                       still checks the other arguments
 * @param file_offset    where in the file, >= 0
 * @param buffer_offset  where in the buffer, counted from buffer_base; >= 0
 * @return the bytes read. Fewer than asked for mean: the end of the file, an error after some bytes had been moved
 *         (the next call shows it), or the limit on one call. Bytes of the buffer behind the count, up to size, may
 *         have been written to; nothing outside the range is. Else, checked in this order:
 *         - -1, errno EINVAL: the driver is closed;
 *         - -hipFileHandleNotRegistered: unknown handle;
 *         - -hipFileInvalidValue: buffer_base is NULL or unknown;
 *           -hipFileHipMemoryTypeInvalid: it is not device memory; -hipError_t: the GPU runtime failed;
 *           -hipFilePlatformNotSupported: no GPU runtime is present;
 *         - -1, errno EINVAL: a negative offset;
 *         - -hipFileInvalidValue: the range leaves the buffer;
 *         - -hipFileIONotSupported: only bouncing could serve the request, and it is forbidden;
 *         - -1, any errno: the file could not be read;
 *         - -hipFileInternalError: anything else.
 */
HIPFILE_API ssize_t hipFileRead(hipFileHandle_t fh, void *buffer_base, size_t size, hoff_t file_offset,
                                hoff_t buffer_offset);

/**
 * Writes device memory to a file. Blocks until every reader of the file can see the data.
 *
 * The data is as durable as after pwrite: call fdatasync on the descriptor to have it on the medium. A write behind
 * the end of the file leaves a hole. With O_APPEND the kernel ignores file_offset.
 *
 * @param fh             the file, open for writing
 * @param buffer_base    device pointer, as for hipFileRead
 * @param size           bytes to write, as for hipFileRead; 0 writes nothing and does not grow the file
 * @param file_offset    where in the file, >= 0
 * @param buffer_offset  where in the buffer, counted from buffer_base; >= 0
 * @return the bytes written. Fewer than asked for mean: an error after some bytes had been moved (the next call
 *         shows it), or the limit on one call. Else an error, as for hipFileRead.
 */
HIPFILE_API ssize_t hipFileWrite(hipFileHandle_t fh, const void *buffer_base, size_t size, hoff_t file_offset,
                                 hoff_t buffer_offset);

/** @} */

/**
 * @defgroup batch Batches
 *
 * Many transfers, handed over in one call and collected later. Entries of a batch are not ordered among each other.
 * Each accepted entry gives exactly one event, once its bytes are in place and its memory is no longer used. All
 * functions may be called from any thread at any time.
 * @{
 */

/** What a batch entry does. */
typedef enum hipFileOpcode {
    hipFileBatchRead = 0, /**< file to device */
    hipFileBatchWrite = 1 /**< device to file */
} hipFileOpcode_t;

/** Where a batch entry has got to. */
typedef enum hipFileStatus {
    hipFileWaiting = 1,   /**< accepted, not handed on */
    hipFilePending = 2,   /**< handed on */
    hipFileInvalid = 4,   /**< refused */
    hipFileCanceled = 8,  /**< canceled before it started */
    hipFileComplete = 16, /**< done; ret is the count of bytes */
    hipFileTimeout = 32,  /**< it had not started within hipFileParamPropertiesBatchIOTimeoutMs */
    hipFileFailed = 64    /**< failed; ret, read as ssize_t, is the error */
} hipFileStatus_t;

/** How a batch entry is to be read. */
typedef enum hipFileBatchMode {
    hipFileBatch = 1 /**< u.batch holds the transfer */
} hipFileBatchMode_t;

/** One transfer of a batch. */
typedef struct hipFileIOParams {
    hipFileBatchMode_t mode; /**< hipFileBatch */
    union {
        struct {
            void *devPtr_base;     /**< device pointer, registered or not */
            int64_t file_offset;   /**< where in the file, >= 0 */
            int64_t devPtr_offset; /**< where in the buffer, counted from devPtr_base; >= 0 */
            size_t size;           /**< bytes */
        } batch;
    } u;
    hipFileHandle_t fh;     /**< the file */
    hipFileOpcode_t opcode; /**< the direction */
    void *cookie;           /**< handed back with the event; not looked at */
} hipFileIOParams_t;

/** The outcome of one transfer of a batch. */
typedef struct hipFileIOEvents {
    void *cookie;           /**< as given */
    hipFileStatus_t status; /**< hipFileComplete, hipFileFailed or hipFileCanceled */
    size_t ret;             /**< bytes moved if complete; if failed, read it as ssize_t: -errno for an error of the
                                 system, -hipFileHipDriverError for one of the GPU runtime, else -hipFileOpError_t */
} hipFileIOEvents_t;

/** A batch. Opaque; a stale or invented value is recognised and refused. */
typedef void *hipFileBatchHandle_t;

struct timespec;

/**
 * Makes a batch with room for a number of entries. Needs no open driver and opens none.
 *
 * @param[out] batch_idp  receives the batch; untouched on failure
 * @param max_nr          entries that may be outstanding at once, including those whose event was not collected;
 *                        1 to 4096
 * @return hipFileSuccess; hipFileInvalidValue if batch_idp is NULL or max_nr out of range; hipFileInternalError if
 *         there is not enough memory for so many entries.
 */
HIPFILE_API hipFileError_t hipFileBatchIOSetUp(hipFileBatchHandle_t *batch_idp, unsigned int max_nr);

/**
 * Hands over transfers: all of them, or none if one is invalid or room is lacking. Does not wait for them.
 *
 * An entry does what hipFileRead or hipFileWrite would do. Closing the driver does not stop entries that were accepted:
 * they keep their file and memory.
 *
 * @param batch_idp  the batch
 * @param nr         entries in iocbp, > 0
 * @param iocbp      the transfers; copied, may be reused after the call. Their device memory must stay valid, and
 *                   their files registered, until their events are collected
 * @param flags      no effect
 * @return hipFileSuccess; in this order: hipFileInvalidValue if there are no entries or the batch is unknown,
 *         hipFileDriverNotInitialized if the driver is not open; for the first entry that has one:
 *         hipFileHandleNotRegistered, hipFileInvalidValue for a null pointer, hipFileHipMemoryTypeInvalid,
 *         hipFileHipDriverError, hipFileInvalidValue for a negative offset, a range outside the memory, a wrong opcode or
 *         mode; hipFileBatchFull if room is lacking; hipFileInternalError if memory is. The text of
 *         hipFileExtLastError() names the entry, counted from 0, and the wrong value.
 */
HIPFILE_API hipFileError_t hipFileBatchIOSubmit(hipFileBatchHandle_t batch_idp, unsigned int nr,
                                                hipFileIOParams_t *iocbp, unsigned int flags);

/**
 * Collects events of finished transfers, in the order in which they finished. Blocks until min_nr are there, nothing
 * is left in flight, or the time is up. A call that waits long without any event says so on stderr, once, and names the
 * file, the engine and the age of the oldest transfer (HIPFILE_WAIT_NOTICE); so does hipFileBatchIODestroy.
 *
 * @param batch_idp   the batch
 * @param min_nr      events to wait for, at most *nr and the size of the batch
 * @param[in,out] nr  room in iocbp, > 0; receives the number of events delivered
 * @param[out] iocbp  receives the events
 * @param timeout     longest wait; NULL: no limit, zero: do not wait
 * @return hipFileSuccess, also with fewer than min_nr events or none; hipFileInvalidValue for a bad argument;
 *         hipFileInternalError if there is not enough memory, and the events stay.
 */
HIPFILE_API hipFileError_t hipFileBatchIOGetStatus(hipFileBatchHandle_t batch_idp, unsigned int min_nr,
                                                   unsigned int *nr, hipFileIOEvents_t *iocbp,
                                                   struct timespec *timeout);

/**
 * Cancels the entries that have not started; their events say hipFileCanceled. The others finish. The batch stays
 * usable.
 *
 * @param batch_idp  the batch
 * @return hipFileSuccess, also if there is nothing to cancel; hipFileInvalidValue for an unknown batch.
 */
HIPFILE_API hipFileError_t hipFileBatchIOCancel(hipFileBatchHandle_t batch_idp);

/**
 * Ends a batch: cancels what has not started, drops events not collected. Blocks until running entries are done.
 * Does nothing for NULL or an unknown value. A call that waits for events of the batch returns.
 *
 * @param batch_idp  the batch
 */
HIPFILE_API void hipFileBatchIODestroy(hipFileBatchHandle_t batch_idp);

/** @} */

/**
 * @defgroup stream Streams
 *
 * I/O in the order of a GPU stream: an operation starts when the stream reaches it, and the stream goes on when it is
 * done.
 * @{
 */

/** Bits of the flags of hipFileStreamRegister: what is fixed when an operation is submitted on the stream. */
#define HIPFILE_STREAM_FIXED_BUF_OFFSET 1
#define HIPFILE_STREAM_FIXED_FILE_OFFSET 2
#define HIPFILE_STREAM_FIXED_FILE_SIZE 4
/** All sizes, offsets and pointers are multiples of 4096. A promise; it changes no result. */
#define HIPFILE_STREAM_PAGE_ALIGNED_INPUTS 8
/** All bits that may be set. */
#define HIPFILE_STREAM_FLAGS_MASK 0xf

/**
 * Reads from a file into device memory in stream order.
 *
 * Size and offsets are passed by address. What the stream was registered as "fixed" for is copied during the call;
 * the rest is read when the stream reaches the operation, and the variables must live, and may be changed, until
 * then. The size may shrink, not grow. bytes_read_p must stay valid until the stream has passed the operation; it is set
 * to 0 when the operation is accepted, which is no outcome yet. A call waits while the stream's hardware queue is full.
 *
 * The first operation on a GPU makes ready what all of them need, if hipFileStreamRegister has not: it allocates and loads,
 * for which GPU runtimes may wait until no stream is held. Who holds a stream and means to release it after this call must
 * have registered a stream, or used one, before holding any; otherwise the call waits for ever.
 *
 * @param fh               the file
 * @param buffer_base      device pointer, registered or not
 * @param size_p           bytes to read
 * @param file_offset_p    where in the file, >= 0
 * @param buffer_offset_p  where in the buffer, >= 0
 * @param[out] bytes_read_p  receives the bytes read, fewer than asked for only at end of file; or -1 for an error of the
 *                         operating system; or a negated hipFileOpError_t. hipFileExtStreamError tells more of either
 * @param stream           the stream; NULL is the default stream
 * @return hipFileSuccess: the outcome arrives in the last output, written when the stream has passed the operation.
 *         Otherwise nothing is queued: hipFileInvalidValue for a NULL address, a range outside the buffer, negative
 *         offsets, memory of another GPU than the stream's, or while the driver is closed (which opens it);
 *         hipFileHandleNotRegistered; hipFileInternalError for memory of the wrong kind; hipFileHipDriverError with the
 *         runtime's code, hipErrorOutOfMemory when no staging memory is left for streams; hipFileAsyncNotSupported on a
 *         stream that is capturing, or where the runtime cannot hold a stream.
 */
HIPFILE_API hipFileError_t hipFileReadAsync(hipFileHandle_t fh, void *buffer_base, size_t *size_p,
                                            hoff_t *file_offset_p, hoff_t *buffer_offset_p, ssize_t *bytes_read_p,
                                            hipStream_t stream);

/**
 * Writes device memory to a file in stream order. Everything said of hipFileReadAsync holds.
 *
 * @param fh               the file, open for writing
 * @param buffer_base      device pointer, registered or not; the memory is only read
 * @param size_p           bytes to write
 * @param file_offset_p    where in the file, >= 0
 * @param buffer_offset_p  where in the buffer, >= 0
 * @param[out] bytes_written_p  receives what hipFileWrite would have returned
 * @param stream           the stream; NULL is the default stream
 * @return hipFileSuccess: the outcome arrives in the last output, written when the stream has passed the operation.
 *         Otherwise nothing is queued: hipFileInvalidValue for a NULL address, a range outside the buffer, negative
 *         offsets, memory of another GPU than the stream's, or while the driver is closed (which opens it);
 *         hipFileHandleNotRegistered; hipFileInternalError for memory of the wrong kind; hipFileHipDriverError with the
 *         runtime's code, hipErrorOutOfMemory when no staging memory is left for streams; hipFileAsyncNotSupported on a
 *         stream that is capturing, or where the runtime cannot hold a stream.
 */
HIPFILE_API hipFileError_t hipFileWriteAsync(hipFileHandle_t fh, void *buffer_base, size_t *size_p,
                                             hoff_t *file_offset_p, hoff_t *buffer_offset_p,
                                             ssize_t *bytes_written_p, hipStream_t stream);

/**
 * Says how operations on a stream behave. Optional: on an unregistered stream nothing is fixed. Needs no open driver.
 *
 * The first registration prepares the GPU and may wait for work that a stream is held by: register before.
 *
 * @param stream  the stream; NULL is the default stream
 * @param flags   HIPFILE_STREAM_* bits
 * @return hipFileSuccess; hipFileInvalidValue for unknown bits or a stream that is registered already;
 *         hipFileHipDriverError with the runtime's code for a stream that it does not know.
 */
HIPFILE_API hipFileError_t hipFileStreamRegister(hipStream_t stream, unsigned int flags);

/**
 * Ends a registration. Does not wait: operations on the stream go on as they were submitted.
 *
 * @param stream  the stream
 * @return hipFileSuccess; hipFileInvalidValue for a stream that is not registered.
 */
HIPFILE_API hipFileError_t hipFileStreamDeregister(hipStream_t stream);

/** @} */

/**
 * @addtogroup version
 * @{
 */

/**
 * Tells the version of the interface that the library implements. Opens nothing.
 *
 * @param[out] major  receives the major number; may be NULL
 * @param[out] minor  receives the minor number; may be NULL
 * @param[out] patch  receives the patch number; may be NULL
 * @return hipFileSuccess.
 */
HIPFILE_API hipFileError_t hipFileGetVersion(unsigned int *major, unsigned int *minor, unsigned int *patch);

/** @} */

/**
 * @defgroup parameter Parameters
 *
 * Settings by name, for the time the driver is closed.
 * @{
 */

/** Parameters that are numbers. */
typedef enum hipFileSizeTConfigParameter {
    hipFileParamProfileStats = 0,                        /**< level of statistics, 0 to 3 */
    hipFileParamExecutionMaxIOQueueDepth = 1,            /**< requests of one transfer at the storage */
    hipFileParamExecutionMaxIOThreads = 2,               /**< threads that copy */
    hipFileParamExecutionMinIOThresholdSizeKB = 3,       /**< KiB: smallest request of several threads */
    hipFileParamExecutionMaxRequestParallelism = 4,      /**< threads of one request */
    hipFileParamPropertiesMaxDirectIOSizeKB = 5,         /**< KiB: see hipFileDriverSetMaxDirectIOSize */
    hipFileParamPropertiesMaxDeviceCacheSizeKB = 6,      /**< KiB: see hipFileDriverSetMaxCacheSize */
    hipFileParamPropertiesPerBufferCacheSizeKB = 7,      /**< KiB: staging memory, each piece */
    hipFileParamPropertiesMaxDevicePinnedMemSizeKB = 8,  /**< KiB: see hipFileDriverSetMaxPinnedMemSize */
    hipFileParamPropertiesIOBatchsize = 9,               /**< entries: most for one batch */
    hipFileParamPollthresholdSizeKB = 10,                /**< KiB: see hipFileDriverSetPollMode */
    hipFileParamPropertiesBatchIOTimeoutMs = 11          /**< milliseconds: longest wait of a batch entry to start */
} hipFileSizeTConfigParameter_t;

/** Parameters that are true or false. */
typedef enum hipFileBoolConfigParameter {
    hipFileParamPropertiesUsePollMode = 0,       /**< see hipFileDriverSetPollMode */
    hipFileParamPropertiesAllowCompatMode = 1,   /**< bouncing through host memory is allowed */
    hipFileParamForceCompatMode = 2,             /**< always bounce */
    hipFileParamFsMiscApiCheckAggressive = 3,    /**< check more about the file system */
    hipFileParamExecutionParallelIO = 4,         /**< split large requests */
    hipFileParamProfileNvtx = 5,                 /**< mark ranges for a profiler */
    hipFileParamPropertiesAllowSystemMemory = 6, /**< accept host memory as a buffer */
    hipFileParamUsePcip2pdma = 7,                /**< use the kernel's PCI peer-to-peer DMA */
    hipFileParamPreferIOUring = 8,               /**< prefer io_uring */
    hipFileParamForceOdirectMode = 9,            /**< use O_DIRECT wherever it is possible */
    hipFileParamSkipTopologyDetection = 10,      /**< do not look at the machine's topology */
    hipFileParamStreamMemopsBypass = 11          /**< do not use stream memory operations */
} hipFileBoolConfigParameter_t;

/** Parameters that are strings. */
typedef enum hipFileStringConfigParameter {
    hipFileParamLoggingLevel = 0,   /**< how much is logged */
    hipFileParamEnvLogfilePath = 1, /**< the log's path */
    hipFileParamLogDir = 2          /**< the log's folder */
} hipFileStringConfigParameter_t;

/**
 * Tells a number parameter: of an open driver the value in force, of a closed one that which the next opening would apply.
 *
 * @param param       which
 * @param[out] value  receives it
 * @return hipFileSuccess; hipFileInvalidValue for an unknown parameter or NULL. Opens nothing.
 */
HIPFILE_API hipFileError_t hipFileGetParameterSizeT(hipFileSizeTConfigParameter_t param, size_t *value);

/**
 * Tells a true-or-false parameter, as hipFileGetParameterSizeT does.
 *
 * @param param       which
 * @param[out] value  receives it
 * @return As hipFileGetParameterSizeT.
 */
HIPFILE_API hipFileError_t hipFileGetParameterBool(hipFileBoolConfigParameter_t param, bool *value);

/**
 * Tells a string parameter, as hipFileGetParameterSizeT does. One that is not set is empty.
 *
 * @param param          which
 * @param[out] desc_str  receives it, with a terminating NUL
 * @param len            bytes of room in desc_str
 * @return hipFileSuccess; hipFileInvalidValue for an unknown parameter, NULL or too little room, and then nothing is
 *         written. Opens nothing.
 */
HIPFILE_API hipFileError_t hipFileGetParameterString(hipFileStringConfigParameter_t param, char *desc_str, int len);

/**
 * Sets a number parameter for the next opening, explicit or implicit, in place of what the environment says. The last
 * hipFileDriverClose forgets it. docs/environment.md says what each parameter takes and does.
 *
 * @param param  which
 * @param value  its value
 * @return hipFileSuccess; hipFileInvalidValue for an unknown parameter, or a value that breaks its step;
 *         hipFileDriverAlreadyOpen while the driver is open; hipFileDriverUnsupportedLimit for a value out of range.
 *         Opens nothing.
 */
HIPFILE_API hipFileError_t hipFileSetParameterSizeT(hipFileSizeTConfigParameter_t param, size_t value);

/**
 * Sets a true-or-false parameter, as hipFileSetParameterSizeT does.
 *
 * @param param  which
 * @param value  its value
 * @return As hipFileSetParameterSizeT.
 */
HIPFILE_API hipFileError_t hipFileSetParameterBool(hipFileBoolConfigParameter_t param, bool value);

/**
 * Sets a string parameter, as hipFileSetParameterSizeT does.
 *
 * @param param     which
 * @param desc_str  its value, in UTF-8; copied
 * @return As hipFileSetParameterSizeT; hipFileInvalidValue also for NULL and for what is not UTF-8.
 */
HIPFILE_API hipFileError_t hipFileSetParameterString(hipFileStringConfigParameter_t param, const char *desc_str);

/** @} */

/**
 * @defgroup stats Statistics
 *
 * Counters of this process since it first opened the driver; closing it leaves them. Times are in microseconds. Rates are
 * per second of the clock, from the beginning of the first transfer to the end of the last. At level 0
 * (hipFileParamProfileStats, HIPFILE_STATS_LEVEL) nothing is counted and all members are 0; at every other level all are
 * filled, and the level says of how many small transfers the time is taken. docs/statistics.md tells more.
 *
 * The functions may be called from any thread at any time, block for no I/O, and open nothing.
 * @{
 */

/** Rows in hipFileStatsLevel3_t::per_gpu_stats. */
#define HIPFILE_MAX_GPUS 16
/** Bytes in hipFilePerGpuStats_t::uuid. */
#define HIPFILE_GPU_UUID_LEN 16

/** How often something went well, and how often it did not. */
typedef struct hipFileOpCounter {
    uint64_t ok;
    uint64_t err;
} hipFileOpCounter_t;

/** Level 1: sums over all GPUs, and host memory. */
typedef struct hipFileStatsLevel1 {
    hipFileOpCounter_t read_ops; /**< err: failed, or refused before anything moved */
    hipFileOpCounter_t write_ops;
    hipFileOpCounter_t hdl_register_ops;
    hipFileOpCounter_t hdl_deregister_ops;
    hipFileOpCounter_t buf_register_ops;
    hipFileOpCounter_t buf_deregister_ops;
    uint64_t read_bytes;
    uint64_t write_bytes;
    uint64_t read_bw_bytes_per_sec;
    uint64_t write_bw_bytes_per_sec;
    uint64_t read_lat_avg_us; /**< of those below 64 KiB only some are timed */
    uint64_t write_lat_avg_us;
    uint64_t read_ops_per_sec;
    uint64_t write_ops_per_sec;
    uint64_t read_lat_sum_us; /**< longer than the clock's time where transfers run together */
    uint64_t write_lat_sum_us;
    hipFileOpCounter_t batch_submit_ops; /**< calls of hipFileBatchIOSubmit */
    hipFileOpCounter_t batch_complete_ops; /**< entries that ended; err: failed, canceled or timed out */
    hipFileOpCounter_t batch_setup_ops;
    hipFileOpCounter_t batch_cancel_ops;
    hipFileOpCounter_t batch_destroy_ops;
    hipFileOpCounter_t batch_enqueued_ops; /**< entries accepted; err: refused */
    hipFileOpCounter_t batch_posix_enqueued_ops; /**< 0: who carries an entry is decided when it runs */
    hipFileOpCounter_t batch_processed_ops; /**< entries that ran */
    hipFileOpCounter_t batch_posix_processed_ops; /**< those that were staged through host memory */
    hipFileOpCounter_t batch_nvfs_submit_ops; /**< those that went direct */
    hipFileOpCounter_t batch_p2p_submit_ops; /**< the same */
    hipFileOpCounter_t batch_aio_submit_ops; /**< 0 */
    hipFileOpCounter_t batch_iouring_submit_ops; /**< those that io_uring staged */
    hipFileOpCounter_t batch_mixed_io_submit_ops; /**< submissions that both read and write */
    hipFileOpCounter_t batch_total_submit_ops; /**< as batch_enqueued_ops */
    uint64_t batch_read_bytes;
    uint64_t batch_write_bytes;
    uint64_t batch_read_bw_bytes;
    uint64_t batch_write_bw_bytes;
    uint64_t batch_submit_lat_avg_us;
    uint64_t batch_completion_lat_avg_us; /**< from the submission to the end of the entry */
    uint64_t batch_submit_ops_per_sec;
    uint64_t batch_complete_ops_per_sec;
    uint64_t batch_submit_lat_sum_us;
    uint64_t batch_completion_lat_sum_us;
    uint64_t last_batch_read_bytes; /**< asked for by the submission accepted last */
    uint64_t last_batch_write_bytes;
} hipFileStatsLevel1_t;

/** Level 2: level 1, and how large the requests were. */
typedef struct hipFileStatsLevel2 {
    hipFileStatsLevel1_t basic;
    uint64_t read_size_kb_hist[32]; /**< [0]: below 4 KiB; [n]: from 4 KiB << (n - 1) on */
    uint64_t write_size_kb_hist[32];
} hipFileStatsLevel2_t;

/** One GPU. "nvfs" counts direct transfers, "posix" bounced ones. */
typedef struct hipFilePerGpuStats {
    char uuid[HIPFILE_GPU_UUID_LEN]; /**< as the runtime tells it */
    uint64_t read_bytes;
    uint64_t read_bw_bytes_per_sec;
    uint64_t read_utilization; /**< percent of the time in which reads were under way */
    uint64_t read_duration_us; /**< sum of the times of all reads */
    uint64_t n_total_reads;
    uint64_t n_p2p_reads;
    uint64_t n_nvfs_reads; /**< direct, at least in part */
    uint64_t n_posix_reads; /**< staged through host memory */
    uint64_t n_unaligned_reads;
    uint64_t n_dr_reads; /**< 0: dynamic routing does not exist here */
    uint64_t n_sparse_regions; /**< 0, as the next */
    uint64_t n_inline_regions;
    uint64_t n_reads_err;
    uint64_t write_bytes;
    uint64_t write_bw_bytes_per_sec;
    uint64_t write_utilization;
    uint64_t write_duration_us;
    uint64_t n_total_writes;
    uint64_t n_p2p_writes;
    uint64_t n_nvfs_writes;
    uint64_t n_posix_writes;
    uint64_t n_unaligned_writes;
    uint64_t n_dr_writes; /**< 0 */
    uint64_t n_writes_err;
    uint64_t n_mmap; /**< registrations of the GPU's memory */
    uint64_t n_mmap_ok;
    uint64_t n_mmap_err; /**< registrations that failed, of the whole process */
    uint64_t n_mmap_free; /**< registrations ended */
    uint64_t reg_bytes; /**< registered now */
} hipFilePerGpuStats_t;

/** Level 3: level 2, and each GPU by itself. The row's index is the GPU's number. */
typedef struct hipFileStatsLevel3 {
    hipFileStatsLevel2_t detailed;
    uint32_t num_gpus; /**< rows in use */
    hipFilePerGpuStats_t per_gpu_stats[HIPFILE_MAX_GPUS];
} hipFileStatsLevel3_t;

/**
 * Tells the statistics of level 1.
 *
 * @param[out] stats  receives them; all of it is written, and nothing behind it
 * @return hipFileInvalidValue: stats is NULL; else success, whatever the level set. Opens nothing.
 */
HIPFILE_API hipFileError_t hipFileGetStatsL1(hipFileStatsLevel1_t *stats);

/**
 * Tells the statistics of level 2.
 *
 * @param[out] stats  receives them; all of it is written, and nothing behind it
 * @return hipFileInvalidValue: stats is NULL; else success, whatever the level set. Opens nothing.
 */
HIPFILE_API hipFileError_t hipFileGetStatsL2(hipFileStatsLevel2_t *stats);

/**
 * Tells the statistics of level 3.
 *
 * @param[out] stats  receives them; all of it is written, and nothing behind it
 * @return hipFileInvalidValue: stats is NULL; else success, whatever the level set. Opens nothing.
 */
HIPFILE_API hipFileError_t hipFileGetStatsL3(hipFileStatsLevel3_t *stats);

/** @} */

#undef __HIPFILE_NODISCARD

#ifdef __cplusplus
}
#endif

#endif /* HIPFILE_H */
