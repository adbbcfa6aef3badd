// nccl_functions.h declares the same as this machine's nccl.h. Checked by the compiler.

#include <nccl.h>

#include <type_traits>

#include "kernels/cuda/libraries/nccl_functions.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Both are passed in the same way: pointers, numbers of one size, or structs of one size.
template <class Ours, class Theirs>
constexpr bool IsPassedAs() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  } else {
    return sizeof(Ours) == sizeof(Theirs) && std::is_class_v<Ours> == std::is_class_v<Theirs> &&
           std::is_trivially_copyable_v<Ours>;
  }
}

template <class Result, class... Params, class TheirResult, class... TheirParams>
constexpr bool IsCalledAs(Result (*)(Params...), TheirResult (*)(TheirParams...)) {
  if constexpr (sizeof...(Params) != sizeof...(TheirParams)) {
    return false;
  } else {
    return IsPassedAs<Result, TheirResult>() && (IsPassedAs<Params, TheirParams>() && ...);
  }
}

#define CHECK_CALL(ours, theirs) \
  STATIC_REQUIRE(IsCalledAs(decltype(NcclFunctions::ours)(), decltype (&theirs)()))

TEST_CASE("NCCL's header declares the functions and numbers that we call it with") {
  CHECK_CALL(get_version, ncclGetVersion);
  CHECK_CALL(get_unique_id, ncclGetUniqueId);
  CHECK_CALL(comm_init_rank, ncclCommInitRank);
  CHECK_CALL(comm_destroy, ncclCommDestroy);
  CHECK_CALL(comm_abort, ncclCommAbort);
  CHECK_CALL(comm_get_async_error, ncclCommGetAsyncError);
  CHECK_CALL(all_reduce, ncclAllReduce);
  CHECK_CALL(all_gather, ncclAllGather);
  CHECK_CALL(broadcast, ncclBroadcast);
  CHECK_CALL(get_error_string, ncclGetErrorString);
  CHECK_CALL(get_last_error, ncclGetLastError);
  STATIC_REQUIRE(kNcclSuccess == ncclSuccess);
  STATIC_REQUIRE(kNcclInt32 == ncclInt32);
  STATIC_REQUIRE(kNcclFloat32 == ncclFloat32);
  STATIC_REQUIRE(kNcclBfloat16 == ncclBfloat16);
  STATIC_REQUIRE(kNcclSum == ncclSum);
}

}  // namespace
}  // namespace tandem
