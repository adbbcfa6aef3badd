#pragma once

// The RankExchange of ranks with a GPU each, over a Communicator of NCCL. Parts of all ranks come
// into one buffer, each rank's own being made there, and a kernel puts their columns in place. Few
// rows go through the ranks' own memory instead, where they can read each other's (CudaPeers). All
// of it is in the device's stream, so steps are captured with their exchanges.
// Thread: engine loop. Owns: communicator and buffers; borrows the device.
// Failure: memory for a buffer is missing (Device::status()); the communicator's status().

#include <memory>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_peers.h"
#include "kernels/rank_exchange.h"

namespace tandem {

class CudaExchange final : public RankExchange {
 public:
  // peers: null: all goes by the communicator.
  CudaExchange(CudaDevice* device, std::unique_ptr<Communicator> communicator,
               std::unique_ptr<CudaPeers> peers);

  bool is_shared() const override { return false; }
  StatusOr<OwnedTensor> Allocate(DType dtype, std::initializer_list<int64_t> shape) override {
    return device_->Allocate(dtype, shape);
  }
  Tensor Part(const Tensor& x, const RankColumns& columns) override;
  void Gather(const Tensor& x, const Tensor& part, const RankColumns& columns) override;
  bool GathersNormed(const Tensor& x, const RankColumns& columns) const override {
    return UsesPeers(x, columns) && CudaPeers::Norms(x, columns);
  }
  void GatherNormed(const Tensor& x, const Tensor& part, const RankColumns& columns,
                    const ExchangeNorm& norm) override {
    if (x.rows() > 0) peers_->GatherNormed(x, part, columns, norm);
  }
  void Meet() override {}
  void Sum(const Tensor& x) override { communicator_->AllReduce(x); }
  void ShareIds(const Tensor& ids) override { communicator_->Broadcast(ids, 0); }
  Tensor IdsFrom(const Tensor& ids, int64_t first) override;
  Status status() override { return communicator_->status(); }

 private:
  bool UsesPeers(const Tensor& x, const RankColumns& columns) const {
    return peers_ != nullptr && CudaPeers::Takes(x, columns);
  }
  // The parts of all ranks: [size, rows, width], as wide as the widest.
  Tensor Parts(const Tensor& x, const RankColumns& columns);
  // Memory of at least `bytes`; null if there is none.
  void* Room(OwnedTensor* memory, int64_t bytes);
  void PutInPlace(const Tensor& x, const Tensor& parts, const RankColumns& columns);

  CudaDevice* device_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<CudaPeers> peers_;
  OwnedTensor parts_, ids_;            // i32, as large as was ever needed
  std::vector<OwnedTensor> outgrown_;  // that captured ops may still name
};

}  // namespace tandem
