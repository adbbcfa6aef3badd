#pragma once

// The KV caches of all ranks in the engine core's process, where a KV connector moves their blocks:
// there one process has all of a block, and nothing is to be agreed between ranks. Each rank's lies
// in memory that all of them map; the caches of the others are views of theirs.
// Thread: engine loop, at start-up; what reads and writes blocks has the rules of KvCache.
// REQUIRES: a step whose result has been collected is done with its blocks at all ranks. Failure:
// memory.

#include <memory>
#include <vector>

#include "common/status.h"
#include "engine_core/executor/model_runner.h"
#include "engine_core/weights/model_config.h"
#include "kernels/kv_caches.h"

namespace tandem {

class RankCaches {
 public:
  // options: the runner's, which has its cache. It must outlive this.
  static StatusOr<RankCaches> Map(const ModelConfig& model, const ModelRunnerOptions& options,
                                  ModelRunner* runner);

  const KvCaches& caches() const { return caches_; }

 private:
  KvCaches caches_;
  std::vector<std::unique_ptr<KvCache>> others_;
};

}  // namespace tandem
