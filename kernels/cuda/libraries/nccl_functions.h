#pragma once

// The part of NCCL's C interface that we call, as nccl.h declares it since 2.13 and in all later
// 2.x, so that the build needs no NCCL. Where nccl.h is installed a test compares the two.

#include <array>
#include <cstddef>

namespace tandem {

// Names a world. One rank makes it and gives its bytes to the others.
struct NcclUniqueId {
  std::array<char, 128> bytes = {};
};

using NcclComm = struct NcclCommOpaque*;

inline constexpr int kNcclSuccess = 0;   // of ncclResult_t
inline constexpr int kNcclInt32 = 2;     // of ncclDataType_t
inline constexpr int kNcclFloat32 = 7;   // of ncclDataType_t
inline constexpr int kNcclBfloat16 = 9;  // of ncclDataType_t
inline constexpr int kNcclSum = 0;       // of ncclRedOp_t

// All but the last two return an ncclResult_t.
struct NcclFunctions {
  int (*get_version)(int* version) = nullptr;
  int (*get_unique_id)(NcclUniqueId* id) = nullptr;
  int (*comm_init_rank)(NcclComm* comm, int num_ranks, NcclUniqueId id, int rank) = nullptr;
  int (*comm_destroy)(NcclComm comm) = nullptr;
  int (*comm_abort)(NcclComm comm) = nullptr;
  int (*comm_get_async_error)(NcclComm comm, int* result) = nullptr;
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, NcclComm comm,
                    void* stream) = nullptr;
  int (*all_gather)(const void* from, void* to, size_t count, int type, NcclComm comm,
                    void* stream) = nullptr;
  int (*broadcast)(const void* from, void* to, size_t count, int type, int root, NcclComm comm,
                   void* stream) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  const char* (*get_last_error)(NcclComm comm) = nullptr;
};

}  // namespace tandem
