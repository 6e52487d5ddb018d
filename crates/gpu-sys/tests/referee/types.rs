//! Layouts: every structure field by field, every alias by what it stands for, and no type of ours left out.

use core::mem::offset_of;
use std::collections::BTreeSet;

use cubecl_hip_sys as theirs;
use gpu_sys::hip;
use hip_emu::types as emu;

use crate::same::{Same, same};

/// Compares a structure of ours with theirs: all fields of both, in type and offset. The patterns have no `..`, so a
/// field of either side that is not listed does not compile.
macro_rules! same_struct {
    ($test:ident: $ours:ty = $theirs:ty { $($our_field:ident = $their_field:ident),* $(,)? }) => {
        #[test]
        fn $test() {
            type Ours = $ours;
            type Theirs = $theirs;
            #[expect(dead_code, reason = "for the compiler to check")]
            fn fields(ours: Ours, theirs: Theirs) {
                $(same(&ours.$our_field, &theirs.$their_field);)*
                let Ours { $($our_field: _),* } = ours;
                let Theirs { $($their_field: _),* } = theirs;
            }
            assert_eq!(size_of::<Ours>(), size_of::<Theirs>());
            assert_eq!(align_of::<Ours>(), align_of::<Theirs>());
            $(
                let name = stringify!($their_field);
                assert_eq!(offset_of!(Ours, $our_field), offset_of!(Theirs, $their_field), "offset of {name}");
            )*
        }
    };
}

same_struct! {
    pointer_attributes: hip::PointerAttributes = theirs::hipPointerAttribute_t {
        memory_type = type_,
        device = device,
        device_pointer = devicePointer,
        host_pointer = hostPointer,
        is_managed = isManaged,
        allocation_flags = allocationFlags,
    }
}

same_struct! {
    ipc_mem_handle: emu::IpcMemHandle = theirs::hipIpcMemHandle_st { reserved = reserved }
}

same_struct! {
    mem_location: emu::MemLocation = theirs::hipMemLocation { kind = type_, id = id }
}

same_struct! {
    mem_access_desc: emu::MemAccessDesc = theirs::hipMemAccessDesc { location = location, flags = flags }
}

/// The bindings give the types of two parts no names of their own, and other ones from version to version; what is in them
/// is compared without these. The kinds of handles lie between what is before and what is behind them.
#[test]
fn mem_allocation_prop() {
    use core::mem::offset_of;
    type Ours = emu::MemAllocationProp;
    type Theirs = theirs::hipMemAllocationProp;
    #[expect(dead_code, reason = "for the compiler to check")]
    fn fields(ours: Ours, theirs: Theirs) {
        same(&ours.kind, &theirs.type_);
        same(&ours.location, &theirs.location);
        same(&ours.win32_handle_meta_data, &theirs.win32HandleMetaData);
        same(&ours.flags.compression_type, &theirs.allocFlags.compressionType);
        same(&ours.flags.gpu_direct_rdma_capable, &theirs.allocFlags.gpuDirectRDMACapable);
        same(&ours.flags.usage, &theirs.allocFlags.usage);
        let Ours { kind: _, handle_types: _, location: _, win32_handle_meta_data: _, flags } = ours;
        let emu::MemAllocationFlags { compression_type: _, gpu_direct_rdma_capable: _, usage: _ } = flags;
    }
    assert_eq!((size_of::<Ours>(), align_of::<Ours>()), (size_of::<Theirs>(), align_of::<Theirs>()));
    for (ours, theirs) in [
        (offset_of!(Ours, kind), offset_of!(Theirs, type_)),
        (offset_of!(Ours, handle_types), offset_of!(Theirs, type_) + size_of::<emu::MemAllocationType>()),
        (offset_of!(Ours, handle_types) + size_of::<emu::MemHandleType>(), offset_of!(Theirs, location)),
        (offset_of!(Ours, win32_handle_meta_data), offset_of!(Theirs, win32HandleMetaData)),
        (offset_of!(Ours, flags), offset_of!(Theirs, allocFlags)),
        (offset_of!(Ours, flags.compression_type), offset_of!(Theirs, allocFlags.compressionType)),
        (
            offset_of!(Ours, flags.gpu_direct_rdma_capable),
            offset_of!(Theirs, allocFlags.gpuDirectRDMACapable),
        ),
        (offset_of!(Ours, flags.usage), offset_of!(Theirs, allocFlags.usage)),
    ] {
        assert_eq!(ours, theirs);
    }
}

same_struct! {
    uuid: hip::Uuid = theirs::hipUUID { bytes = bytes }
}

same_struct! {
    device_properties: emu::DeviceProperties = theirs::hipDeviceProp_tR0600 {
        name = name,
        uuid = uuid,
        luid = luid,
        luidDeviceNodeMask = luidDeviceNodeMask,
        totalGlobalMem = totalGlobalMem,
        sharedMemPerBlock = sharedMemPerBlock,
        regsPerBlock = regsPerBlock,
        warpSize = warpSize,
        memPitch = memPitch,
        maxThreadsPerBlock = maxThreadsPerBlock,
        maxThreadsDim = maxThreadsDim,
        maxGridSize = maxGridSize,
        clockRate = clockRate,
        totalConstMem = totalConstMem,
        major = major,
        minor = minor,
        textureAlignment = textureAlignment,
        texturePitchAlignment = texturePitchAlignment,
        deviceOverlap = deviceOverlap,
        multiProcessorCount = multiProcessorCount,
        kernelExecTimeoutEnabled = kernelExecTimeoutEnabled,
        integrated = integrated,
        canMapHostMemory = canMapHostMemory,
        computeMode = computeMode,
        maxTexture1D = maxTexture1D,
        maxTexture1DMipmap = maxTexture1DMipmap,
        maxTexture1DLinear = maxTexture1DLinear,
        maxTexture2D = maxTexture2D,
        maxTexture2DMipmap = maxTexture2DMipmap,
        maxTexture2DLinear = maxTexture2DLinear,
        maxTexture2DGather = maxTexture2DGather,
        maxTexture3D = maxTexture3D,
        maxTexture3DAlt = maxTexture3DAlt,
        maxTextureCubemap = maxTextureCubemap,
        maxTexture1DLayered = maxTexture1DLayered,
        maxTexture2DLayered = maxTexture2DLayered,
        maxTextureCubemapLayered = maxTextureCubemapLayered,
        maxSurface1D = maxSurface1D,
        maxSurface2D = maxSurface2D,
        maxSurface3D = maxSurface3D,
        maxSurface1DLayered = maxSurface1DLayered,
        maxSurface2DLayered = maxSurface2DLayered,
        maxSurfaceCubemap = maxSurfaceCubemap,
        maxSurfaceCubemapLayered = maxSurfaceCubemapLayered,
        surfaceAlignment = surfaceAlignment,
        concurrentKernels = concurrentKernels,
        ECCEnabled = ECCEnabled,
        pciBusID = pciBusID,
        pciDeviceID = pciDeviceID,
        pciDomainID = pciDomainID,
        tccDriver = tccDriver,
        asyncEngineCount = asyncEngineCount,
        unifiedAddressing = unifiedAddressing,
        memoryClockRate = memoryClockRate,
        memoryBusWidth = memoryBusWidth,
        l2CacheSize = l2CacheSize,
        persistingL2CacheMaxSize = persistingL2CacheMaxSize,
        maxThreadsPerMultiProcessor = maxThreadsPerMultiProcessor,
        streamPrioritiesSupported = streamPrioritiesSupported,
        globalL1CacheSupported = globalL1CacheSupported,
        localL1CacheSupported = localL1CacheSupported,
        sharedMemPerMultiprocessor = sharedMemPerMultiprocessor,
        regsPerMultiprocessor = regsPerMultiprocessor,
        managedMemory = managedMemory,
        isMultiGpuBoard = isMultiGpuBoard,
        multiGpuBoardGroupID = multiGpuBoardGroupID,
        hostNativeAtomicSupported = hostNativeAtomicSupported,
        singleToDoublePrecisionPerfRatio = singleToDoublePrecisionPerfRatio,
        pageableMemoryAccess = pageableMemoryAccess,
        concurrentManagedAccess = concurrentManagedAccess,
        computePreemptionSupported = computePreemptionSupported,
        canUseHostPointerForRegisteredMem = canUseHostPointerForRegisteredMem,
        cooperativeLaunch = cooperativeLaunch,
        cooperativeMultiDeviceLaunch = cooperativeMultiDeviceLaunch,
        sharedMemPerBlockOptin = sharedMemPerBlockOptin,
        pageableMemoryAccessUsesHostPageTables = pageableMemoryAccessUsesHostPageTables,
        directManagedMemAccessFromHost = directManagedMemAccessFromHost,
        maxBlocksPerMultiProcessor = maxBlocksPerMultiProcessor,
        accessPolicyMaxWindowSize = accessPolicyMaxWindowSize,
        reservedSharedMemPerBlock = reservedSharedMemPerBlock,
        hostRegisterSupported = hostRegisterSupported,
        sparseHipArraySupported = sparseHipArraySupported,
        hostRegisterReadOnlySupported = hostRegisterReadOnlySupported,
        timelineSemaphoreInteropSupported = timelineSemaphoreInteropSupported,
        memoryPoolsSupported = memoryPoolsSupported,
        gpuDirectRDMASupported = gpuDirectRDMASupported,
        gpuDirectRDMAFlushWritesOptions = gpuDirectRDMAFlushWritesOptions,
        gpuDirectRDMAWritesOrdering = gpuDirectRDMAWritesOrdering,
        memoryPoolSupportedHandleTypes = memoryPoolSupportedHandleTypes,
        deferredMappingHipArraySupported = deferredMappingHipArraySupported,
        ipcEventSupported = ipcEventSupported,
        clusterLaunch = clusterLaunch,
        unifiedFunctionPointers = unifiedFunctionPointers,
        reserved = reserved,
        hipReserved = hipReserved,
        gcnArchName = gcnArchName,
        maxSharedMemoryPerMultiProcessor = maxSharedMemoryPerMultiProcessor,
        clockInstructionRate = clockInstructionRate,
        arch = arch,
        hdpMemFlushCntl = hdpMemFlushCntl,
        hdpRegFlushCntl = hdpRegFlushCntl,
        cooperativeMultiDeviceUnmatchedFunc = cooperativeMultiDeviceUnmatchedFunc,
        cooperativeMultiDeviceUnmatchedGridDim = cooperativeMultiDeviceUnmatchedGridDim,
        cooperativeMultiDeviceUnmatchedBlockDim = cooperativeMultiDeviceUnmatchedBlockDim,
        cooperativeMultiDeviceUnmatchedSharedMem = cooperativeMultiDeviceUnmatchedSharedMem,
        isLargeBar = isLargeBar,
        asicRevision = asicRevision,
    }
}

/// Compares what aliases stand for, and lists them.
macro_rules! same_aliases {
    ($($ours:ident = $theirs:ident;)*) => {
        const ALIASES: &[(&str, &str)] = &[$((stringify!($ours), stringify!($theirs))),*];
        const fn same_type<Ours: Same<Theirs>, Theirs>() {
            assert!(size_of::<Ours>() == size_of::<Theirs>() && align_of::<Ours>() == align_of::<Theirs>());
        }
        const _: () = {
            use gpu_sys::hip::*;
            use hip_emu::types::*;
            $(same_type::<$ours, theirs::$theirs>();)*
        };
    };
}

same_aliases! {
    HipError = hipError_t;
    MemcpyKind = hipMemcpyKind;
    MemoryType = hipMemoryType;
    DevicePtr = hipDeviceptr_t;
    DeviceOrdinal = hipDevice_t;
    StreamPtr = hipStream_t;
    EventPtr = hipEvent_t;
    AllocationPtr = hipMemGenericAllocationHandle_t;
    MemAllocationType = hipMemAllocationType;
    MemHandleType = hipMemAllocationHandleType;
    MemGranularity = hipMemAllocationGranularity_flags;
    MemLocationType = hipMemLocationType;
    MemAccessFlags = hipMemAccessFlags;
    ModulePtr = hipModule_t;
    FunctionPtr = hipFunction_t;
    HostFn = hipHostFn_t;
    DeviceAttribute = hipDeviceAttribute_t;
    PointerAttribute = hipPointer_attribute;
    StreamCaptureStatus = hipStreamCaptureStatus;
    ProcAddressStatus = hipDriverProcAddressQueryResult;
    StreamCaptureMode = hipStreamCaptureMode;
    GraphPtr = hipGraph_t;
    RtcProgramPtr = hiprtcProgram;
    RtcResult = hiprtcResult;
}

/// Compared by the tests above, or only ever pointed to.
const STRUCTURES: &[&str] = &[
    "PointerAttributes",
    "Uuid",
    "StreamOpaque",
    "EventOpaque",
    "AllocationOpaque",
    "IpcMemHandle",
    "MemLocation",
    "MemAccessDesc",
    "MemAllocationFlags",
    "MemAllocationProp",
    "ModuleOpaque",
    "FunctionOpaque",
    "GraphOpaque",
    "RtcProgramOpaque",
];

/// In no header of ROCm; `tests/it/amd_file.rs` passes them to C.
const UNDECLARED: &[&str] = &["AmdFileHandle", "AmdFileFn", "ExportFn"];

/// The names of the bindings' types that are compared here.
pub(crate) fn their_names() -> impl Iterator<Item = &'static str> {
    let structures = ["hipPointerAttribute_t", "hipUUID_t", "hipDeviceProp_tR0600", "hipDeviceArch_t"];
    ALIASES.iter().map(|(_, theirs)| *theirs).chain(structures)
}

#[test]
fn no_type_is_left_out() {
    let sources = [include_str!("../../src/hip.rs"), include_str!("../../../hip-emu/src/types.rs")];
    let declared: BTreeSet<&str> =
        sources.iter().flat_map(|source| source.lines()).filter_map(type_name).collect();
    let compared = ALIASES.iter().map(|(ours, _)| ours).chain(STRUCTURES).chain(UNDECLARED);
    assert_eq!(declared, compared.copied().collect());
    assert!(declared.contains("MemoryType"));
}

/// The name that a line of a source file declares as a type.
fn type_name(line: &str) -> Option<&str> {
    let rest = ["pub struct ", "pub type ", "pub union ", "pub enum "]
        .iter()
        .find_map(|keyword| line.strip_prefix(keyword))?;
    rest.split(|c: char| !c.is_alphanumeric()).next()
}
