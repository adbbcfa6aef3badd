#pragma once

// NCCL, opened at run time, and the Communicator over it for ranks with a GPU each. One GPU needs
// neither, and NCCL is not opened then: it is a library of 218 MB.
//   ASSIGN_OR_RETURN(const Nccl nccl, Nccl::Open());
//   ASSIGN_OR_RETURN(const NcclUniqueId id, nccl.MakeUniqueId());  // on rank 0, for all ranks
//   ASSIGN_OR_RETURN(auto communicator, NcclCommunicator::Init(nccl, {rank, size}, id, stream));
//   communicator->AllReduce(x);
// Thread: Nccl any, a value; a communicator its rank's. Init waits for all ranks, so ranks of one
// process have a thread each.
// Failure: Unavailable with NCCL's own message; without the library, what was looked for and what
// to do. NCCL_DEBUG=INFO makes NCCL log more, to stdout.
// Network: ranks meet at a TCP port that MakeUniqueId opens, on the first interface that is up or
// on the one that NCCL_SOCKET_IFNAME names (lo: out of reach of other hosts).

#include <memory>
#include <string>

#include "common/status.h"
#include "kernels/communicator.h"
#include "kernels/cuda/libraries/nccl_functions.h"
#include "kernels/tensor.h"

namespace tandem {

class Nccl {
 public:
  static StatusOr<Nccl> Open(const std::string& file = "libnccl.so.2");

  const std::string& version() const { return version_; }  // "2.28.9"
  const NcclFunctions& functions() const { return functions_; }
  StatusOr<NcclUniqueId> MakeUniqueId() const;

  // "ncclAllReduce: invalid argument (…): AllReduce : comm argument is NULL"; OK for success.
  Status ToStatus(int result, const std::string& what) const;

 private:
  NcclFunctions functions_;
  std::string version_;
};

struct NcclRank {
  int rank = 0;
  int size = 1;
};

// After a failure every call does nothing. Destruction aborts what still runs on the device after a
// failure; otherwise it waits for it and for the other ranks of this host.
class NcclCommunicator final : public Communicator {
 public:
  // On the calling thread's current device; each rank has a device of its own. Exchanges go into
  // `stream` (a cudaStream_t), which outlives the communicator.
  static StatusOr<std::unique_ptr<NcclCommunicator>> Init(const Nccl& nccl, NcclRank rank,
                                                          const NcclUniqueId& id, void* stream);
  NcclCommunicator(Nccl nccl, NcclRank rank, NcclComm comm, void* stream);
  ~NcclCommunicator() override;

  // NCCL chooses the order of the additions, and whether a bf16 sum is rounded between them.
  void AllReduce(const Tensor& x) override;
  void AllGather(const Tensor& x) override;
  void Broadcast(const Tensor& x, int root) override;
  Status status() override;

 private:
  Nccl nccl_;
  NcclComm comm_;
  void* stream_;
  Status failure_;
};

}  // namespace tandem
