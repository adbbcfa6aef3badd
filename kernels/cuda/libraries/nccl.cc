#include "kernels/cuda/libraries/nccl.h"

#include <utility>

#include "common/log.h"
#include "kernels/cuda/libraries/shared_library.h"

namespace tandem {
namespace {

StatusOr<NcclFunctions> FindFunctions(const std::string& file) {
  ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Open(file));
  NcclFunctions found;
  RETURN_IF_ERROR(library.Find("ncclGetVersion", &found.get_version));
  RETURN_IF_ERROR(library.Find("ncclGetUniqueId", &found.get_unique_id));
  RETURN_IF_ERROR(library.Find("ncclCommInitRank", &found.comm_init_rank));
  RETURN_IF_ERROR(library.Find("ncclCommDestroy", &found.comm_destroy));
  RETURN_IF_ERROR(library.Find("ncclCommAbort", &found.comm_abort));
  RETURN_IF_ERROR(library.Find("ncclCommGetAsyncError", &found.comm_get_async_error));
  RETURN_IF_ERROR(library.Find("ncclAllReduce", &found.all_reduce));
  RETURN_IF_ERROR(library.Find("ncclAllGather", &found.all_gather));
  RETURN_IF_ERROR(library.Find("ncclBroadcast", &found.broadcast));
  RETURN_IF_ERROR(library.Find("ncclGetErrorString", &found.get_error_string));
  RETURN_IF_ERROR(library.Find("ncclGetLastError", &found.get_last_error));
  return found;
}

// 22809 is 2.28.9.
std::string VersionText(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

int TypeOf(const Tensor& x) {
  return x.dtype == DType::kF32    ? kNcclFloat32
         : x.dtype == DType::kBf16 ? kNcclBfloat16
                                   : kNcclInt32;
}

}  // namespace

StatusOr<Nccl> Nccl::Open(const std::string& file) {
  Nccl nccl;
  StatusOr<NcclFunctions> found = FindFunctions(file);
  if (!found.ok()) {
    return UnavailableError("NCCL cannot be used (" + found.status().message() +
                            "): install libnccl2, 2.13 or later, or name the folder of " + file +
                            " in LD_LIBRARY_PATH");
  }
  nccl.functions_ = *found;
  int version = 0;
  RETURN_IF_ERROR(nccl.ToStatus(nccl.functions_.get_version(&version), "ncclGetVersion"));
  nccl.version_ = VersionText(version);
  return nccl;
}

StatusOr<NcclUniqueId> Nccl::MakeUniqueId() const {
  NcclUniqueId id;
  RETURN_IF_ERROR(ToStatus(functions_.get_unique_id(&id), "ncclGetUniqueId"));
  return id;
}

Status Nccl::ToStatus(int result, const std::string& what) const {
  if (result == kNcclSuccess) return OkStatus();
  std::string message = what + ": " + functions_.get_error_string(result);
  const std::string last_error = functions_.get_last_error(nullptr);  // of the whole process
  if (!last_error.empty()) message += ": " + last_error;
  return UnavailableError(message);
}

StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Init(const Nccl& nccl, NcclRank rank,
                                                                   const NcclUniqueId& id,
                                                                   void* stream) {
  NcclComm comm = nullptr;
  const int result = nccl.functions().comm_init_rank(&comm, rank.size, id, rank.rank);
  RETURN_IF_ERROR(nccl.ToStatus(result, "ncclCommInitRank, rank " + std::to_string(rank.rank) +
                                            " of " + std::to_string(rank.size)));
  return std::make_unique<NcclCommunicator>(nccl, rank, comm, stream);
}

NcclCommunicator::NcclCommunicator(Nccl nccl, NcclRank rank, NcclComm comm, void* stream)
    : Communicator(rank.rank, rank.size), nccl_(std::move(nccl)), comm_(comm), stream_(stream) {}

NcclCommunicator::~NcclCommunicator() {
  const bool is_sound = status().ok();
  const NcclFunctions& functions = nccl_.functions();
  const Status ended = is_sound ? nccl_.ToStatus(functions.comm_destroy(comm_), "ncclCommDestroy")
                                : nccl_.ToStatus(functions.comm_abort(comm_), "ncclCommAbort");
  if (!ended.ok()) LOG_WARNING << ended.message();
}

void NcclCommunicator::AllReduce(const Tensor& x) {
  CheckAdded(x);
  if (!failure_.ok()) return;
  const auto count = static_cast<size_t>(x.NumElements());
  failure_ = nccl_.ToStatus(
      nccl_.functions().all_reduce(x.data, x.data, count, TypeOf(x), kNcclSum, comm_, stream_),
      "ncclAllReduce");
}

void NcclCommunicator::AllGather(const Tensor& x) {
  CheckGathered(x);
  if (!failure_.ok()) return;
  // NCCL gathers in place where `from` is this rank's part of `to`.
  const auto count = static_cast<size_t>(x.RowSize());
  failure_ = nccl_.ToStatus(nccl_.functions().all_gather(x.Rows(rank(), 1).data, x.data, count,
                                                         TypeOf(x), comm_, stream_),
                            "ncclAllGather");
}

void NcclCommunicator::Broadcast(const Tensor& x, int root) {
  CheckExchanged(x);
  CheckRoot(root);
  if (!failure_.ok()) return;
  const auto count = static_cast<size_t>(x.NumElements());
  failure_ = nccl_.ToStatus(
      nccl_.functions().broadcast(x.data, x.data, count, TypeOf(x), root, comm_, stream_),
      "ncclBroadcast");
}

Status NcclCommunicator::status() {
  if (!failure_.ok()) return failure_;
  int error = kNcclSuccess;
  const int result = nccl_.functions().comm_get_async_error(comm_, &error);
  failure_ = nccl_.ToStatus(result == kNcclSuccess ? error : result, "NCCL, asynchronously");
  return failure_;
}

}  // namespace tandem
