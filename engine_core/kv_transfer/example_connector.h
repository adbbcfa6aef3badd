#pragma once

// A KV connector over a folder that engines share, vLLM's ExampleConnector (once
// SharedStorageConnector): one engine computes a prompt and stores its KV, another one loads it and
// decodes. By role it does one of the two, or both. Whole prompts only, as there; the KV of
// adapters, embeddings and pooled requests is left alone.
// Look-ups, loads and stores are asynchronous. A request is asked about until its look-up has
// ended. One that says do_remote_prefill is not looked up: what it names has to be there. Blocks of
// a request that ends stay until they are stored; nothing is stored of one that was aborted or has
// failed. The last output of a prefill, which is any request of an engine that only stores and each
// that says do_remote_decode, waits for that: the engine that decodes then finds it all. A prefix
// whose load has failed is not found again before it has been replaced. Thread: engine loop, both
// halves; the worker has its own. The folder grows until its disk is full, then stores fail with a
// warning. On a disk that is slower than the prefills, or does not respond, blocks that wait to be
// stored take at most half of the cache: what goes beyond is not stored, with a warning. A running
// request that lacks blocks does not wait for the disk. Reset is refused: the files are others' as
// well.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine_core/kv_transfer/folder_worker.h"
#include "engine_core/kv_transfer/in_process_connector.h"
#include "engine_core/kv_transfer/prefix_folder.h"

namespace tandem {

struct ExampleConnectorOptions {
  bool stores = true;
  bool loads = true;
  std::string engine_id = {};               // for kv_transfer_params
  int64_t max_blocks_to_store = INT32_MAX;  // at once, unless they are one request's
};

class ExampleConnector final : public InProcessConnector {
 public:
  ExampleConnector(ExampleConnectorOptions options, std::unique_ptr<PrefixFolder> folder)
      : options_(std::move(options)), folder_(std::move(folder)), worker_(folder_.get()) {}

  bool OnAdded(const Request& request) override;
  std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) override;
  wire::CountsByName Sources(const Request& /*request*/, int32_t /*num_local_tokens*/,
                             const KvMatch& match) const override {
    return {{"disk", match.num_tokens}};
  }
  void OnAllocated(const Request& request, std::span<const BlockId> table, int32_t num_local_tokens,
                   const KvMatch& match) override;
  KvEnding OnFinished(const Request& request, wire::RequestStatus status,
                      std::span<const BlockId> table) override;
  bool Reset() override { return false; }

  void Report(KvTransferReport* report) override;
  bool is_busy() const override { return worker_.is_busy(); }
  void WaitBriefly() override { worker_.WaitBriefly(); }

  const PrefixFolder& folder() const { return *folder_; }

 private:
  // Whether the folder holds a request's prefix; nullopt: being looked up.
  struct LookUp {
    std::string key;
    std::optional<bool> found;
  };

  int32_t NumTokens(const Request& request) const;  // that are stored or loaded; 0: none
  std::string KeyOf(const Request& request, int32_t num_tokens) const;
  void NoteStored(const FolderJob& job);
  void NoteNotStored(const RequestId& id, const Status& why);

  const ExampleConnectorOptions options_;
  const std::unique_ptr<PrefixFolder> folder_;
  std::unordered_map<RequestId, LookUp> look_ups_;  // of requests that wait
  std::unordered_set<std::string> bad_keys_;        // whose last load has failed
  int64_t num_blocks_to_store_ = 0;                 // under way
  int64_t num_failed_stores_ = 0;
  FolderWorker worker_;
};

}  // namespace tandem
