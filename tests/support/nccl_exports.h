#pragma once

// What a library in NCCL's place exports. A definition of another type than NcclFunctions calls
// does not compile.

#include <type_traits>

#include "kernels/cuda/libraries/nccl_functions.h"

namespace tandem {

template <auto kMember>
using NcclExport = std::remove_pointer_t<std::remove_cvref_t<decltype(NcclFunctions().*kMember)>>;

extern "C" {

NcclExport<&NcclFunctions::get_version> ncclGetVersion;
NcclExport<&NcclFunctions::get_unique_id> ncclGetUniqueId;
NcclExport<&NcclFunctions::comm_init_rank> ncclCommInitRank;
NcclExport<&NcclFunctions::comm_destroy> ncclCommDestroy;
NcclExport<&NcclFunctions::comm_abort> ncclCommAbort;
NcclExport<&NcclFunctions::comm_get_async_error> ncclCommGetAsyncError;
NcclExport<&NcclFunctions::all_reduce> ncclAllReduce;
NcclExport<&NcclFunctions::all_gather> ncclAllGather;
NcclExport<&NcclFunctions::broadcast> ncclBroadcast;
NcclExport<&NcclFunctions::get_error_string> ncclGetErrorString;
NcclExport<&NcclFunctions::get_last_error> ncclGetLastError;

}  // extern "C"

}  // namespace tandem
