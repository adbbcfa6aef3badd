#pragma once

// NCCL, opened at run time, and a communicator that sums over the GPUs of one model (tensor
// parallelism). One GPU needs neither, and nobody opens NCCL then: it is a library of 218 MB.
//   ASSIGN_OR_RETURN(const Nccl nccl, Nccl::Open());
//   ASSIGN_OR_RETURN(const NcclUniqueId id, nccl.MakeUniqueId());  // rank 0, who gives it to all
//   ASSIGN_OR_RETURN(auto communicator, NcclCommunicator::Init(nccl, {rank, world_size}, id));
//   RETURN_IF_ERROR(communicator->AllReduce(x, stream));
// Thread: Nccl any, a value; a communicator its rank's. Init waits for all ranks, so those of one
// process have a thread each.
// Failure: Unavailable with NCCL's own words; without the library, what was looked for and what to
// do. NCCL_DEBUG=INFO makes NCCL tell more, on stdout.
// Network: ranks meet at a TCP port that MakeUniqueId opens, on the first interface that is up or
// on the one that NCCL_SOCKET_IFNAME names (lo: nobody else's host can reach it).

#include <memory>
#include <string>

#include "common/status.h"
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
  int world_size = 1;
};

// The first failure is final: every later call returns it, and the world has to be made anew.
// Destruction gives up what is still running on the device after a failure, else waits for it and
// for the other ranks of this host.
class NcclCommunicator {
 public:
  // On the calling thread's current device; each rank has a device of its own.
  static StatusOr<std::unique_ptr<NcclCommunicator>> Init(const Nccl& nccl, NcclRank rank,
                                                          const NcclUniqueId& id);
  NcclCommunicator(Nccl nccl, NcclComm comm);
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator();

  // x = the sum of all ranks' x, put into `stream` (a cudaStream_t); float32 or bf16, contiguous,
  // of the same size everywhere. All ranks get the same bits; where a bf16 sum is rounded between
  // additions, and in which order they are done, is NCCL's choice.
  Status AllReduce(const Tensor& x, void* stream);

  // What has failed meanwhile, here or at another rank. Whoever waits for a stream asks, since a
  // sum in it whose peers are gone may never end.
  Status AsyncStatus();

 private:
  Nccl nccl_;
  NcclComm comm_;
  Status failure_;
};

}  // namespace tandem
