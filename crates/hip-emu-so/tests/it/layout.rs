//! The headers' structures, as the C compiler lays them out, against Rust's.

use core::mem::offset_of;
use std::fmt::Write as _;
use std::process::Command;

use gpu_sys::hip::{PointerAttributes, Uuid};
use hip_emu::types::{
    DeviceProperties, IpcMemHandle, MemAccessDesc, MemAllocationFlags, MemAllocationProp, MemLocation,
};

use crate::cc::{build, code_of, header, run, succeeded};

type Measure = (&'static str, usize);

/// Size, alignment and the offset of each field, the latter by C's names.
macro_rules! measures {
    ($rust:ty { $($field:ident = $c:tt),* $(,)? }) => {
        [
            ("sizeof", size_of::<$rust>()),
            ("_Alignof", align_of::<$rust>()),
            $((stringify!($c), offset_of!($rust, $field)),)*
        ]
    };
}

fn compare(c_name: &str, rust: &[Measure]) {
    let fields = fields_of(c_name);
    let known: Vec<&str> = rust[2..].iter().map(|(name, _)| *name).collect();
    assert_eq!(fields, known, "the fields of {c_name}");

    let mut source =
        "#include <hip/hip_runtime.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n"
            .to_owned();
    let _ = writeln!(source, "    printf(\"sizeof %zu\\n\", sizeof(struct {c_name}));");
    let _ = writeln!(source, "    printf(\"_Alignof %zu\\n\", __alignof__(struct {c_name}));");
    for field in &fields {
        let _ = writeln!(source, "    printf(\"{field} %zu\\n\", offsetof(struct {c_name}, {field}));");
    }
    source.push_str("    return 0;\n}\n");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layout.c");
    std::fs::write(&path, source).unwrap();
    let program = build(&path, &folder.path().join("layout"), &[]);
    let output = run(&mut Command::new(program));
    succeeded(&output);
    let expected: String = rust.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{c_name}");
}

/// The names of a structure's fields, in order.
fn fields_of(c_name: &str) -> Vec<String> {
    let code = code_of(&header("hip_emu_types.h"));
    let (_, rest) = code.split_once(&format!("typedef struct {c_name} {{")).unwrap();
    let (body, _) = rest.split_once('}').unwrap();
    let name = |field: &str| {
        let field = field.trim().split('[').next().unwrap().to_owned();
        field.rsplit([' ', '*']).next().unwrap().to_owned()
    };
    body.split(';').filter(|field| !field.trim().is_empty()).map(name).collect()
}

#[test]
fn pointer_attributes() {
    let rust = measures!(PointerAttributes {
        memory_type = type,
        device = device,
        device_pointer = devicePointer,
        host_pointer = hostPointer,
        is_managed = isManaged,
        allocation_flags = allocationFlags,
    });
    compare("hipPointerAttribute_t", &rust);
}

#[test]
fn uuid() {
    compare("hipUUID_t", &measures!(Uuid { bytes = bytes }));
}

#[test]
fn device_properties() {
    let rust = measures!(DeviceProperties {
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
    });
    compare("hipDeviceProp_tR0600", &rust);
}

#[test]
fn what_virtual_memory_is_told_is_laid_out_alike() {
    compare("hipIpcMemHandle_st", &measures!(IpcMemHandle { reserved = reserved }));
    compare("hipMemLocation", &measures!(MemLocation { kind = type, id = id }));
    compare("hipMemAccessDesc", &measures!(MemAccessDesc { location = location, flags = flags }));
    let flags = measures!(MemAllocationFlags {
        compression_type = compressionType,
        gpu_direct_rdma_capable = gpuDirectRDMACapable,
        usage = usage,
    });
    compare("hipEmuMemAllocFlags", &flags);
    let prop = measures!(MemAllocationProp {
        kind = type,
        handle_types = requestedHandleType,
        location = location,
        win32_handle_meta_data = win32HandleMetaData,
        flags = allocFlags,
    });
    compare("hipMemAllocationProp", &prop);
}
