#include "engine_core/kv_transfer/example_connector.h"

#include <bit>

#include "common/log.h"
#include "engine_core/kv_transfer/kv_transfer_params.h"
#include "engine_core/kv_transfer/prefix_key.h"
#include "engine_core/scheduler/request.h"

namespace tandem {
namespace {

KvTransferParams ParamsOf(const Request& request) {
  return ReadKvTransferParams(request.wire.sampling_params.extra_args);
}

}  // namespace

int32_t ExampleConnector::NumTokens(const Request& request) const {
  const ExtraKeys& keys = request.extra_keys;
  if (request.pools() || keys.adapter.id != 0 || keys.embeddings != nullptr) return 0;
  return NumStoredTokens(request.num_prompt_tokens, folder_->block_size());
}

std::string ExampleConnector::KeyOf(const Request& request, int32_t num_tokens) const {
  const std::span<const TokenId> prompt = request.token_ids;
  return PrefixKey(prompt.first(static_cast<size_t>(num_tokens)), request.extra_keys);
}

bool ExampleConnector::OnAdded(const Request& request) {
  return options_.loads && ParamsOf(request).do_remote_prefill;
}

std::optional<KvMatch> ExampleConnector::Match(const Request& request, int32_t num_local_tokens) {
  const int32_t num_tokens = options_.loads ? NumTokens(request) : 0;
  if (num_tokens <= num_local_tokens) return KvMatch{};
  const KvMatch whole = {num_tokens - num_local_tokens, true};
  if (ParamsOf(request).do_remote_prefill) return whole;
  const auto [entry, is_new] = look_ups_.try_emplace(request.id());
  LookUp& look_up = entry->second;
  if (is_new) {
    look_up.key = KeyOf(request, num_tokens);
    worker_.Push({.kind = FolderJob::Kind::kLookUp, .id = request.id(), .key = look_up.key});
  }
  if (!look_up.found) return std::nullopt;
  return *look_up.found && !bad_keys_.contains(look_up.key) ? whole : KvMatch{};
}

void ExampleConnector::OnAllocated(const Request& request, std::span<const BlockId> table,
                                   int32_t num_local_tokens, const KvMatch& match) {
  look_ups_.erase(request.id());
  if (match.num_tokens == 0) return;
  const int32_t num_tokens = num_local_tokens + match.num_tokens;
  const auto blocks = table.first(static_cast<size_t>(num_tokens / folder_->block_size()));
  FolderJob job = {.kind = FolderJob::Kind::kLoad,
                   .id = request.id(),
                   .key = KeyOf(request, num_tokens),
                   .blocks = {blocks.begin(), blocks.end()},
                   .first_block = static_cast<size_t>(num_local_tokens / folder_->block_size())};
  BeginAfterSteps([this, job = std::move(job)] { worker_.Push(job); });
}

KvEnding ExampleConnector::OnFinished(const Request& request, wire::RequestStatus status,
                                      std::span<const BlockId> table) {
  look_ups_.erase(request.id());
  const bool is_sound = status != wire::RequestStatus::kFinishedAborted &&
                        status != wire::RequestStatus::kFinishedError;
  if (!options_.stores || !is_sound || request.status != wire::RequestStatus::kRunning) return {};
  const int32_t num_tokens = NumTokens(request);
  const auto num_blocks = static_cast<size_t>(num_tokens / folder_->block_size());
  if (num_tokens == 0 || num_tokens > request.num_computed_tokens || num_blocks > table.size()) {
    return {};
  }
  const int64_t num_under_way = num_blocks_to_store_ + static_cast<int64_t>(num_blocks);
  if (num_blocks_to_store_ > 0 && num_under_way > options_.max_blocks_to_store) {
    NoteNotStored(request.id(), ResourceExhaustedError("its disk is too slow, " +
                                                       std::to_string(num_blocks_to_store_) +
                                                       " KV blocks wait for it"));
    return {};
  }
  num_blocks_to_store_ = num_under_way;
  FolderJob job = {.kind = FolderJob::Kind::kStore,
                   .id = request.id(),
                   .key = KeyOf(request, num_tokens),
                   .blocks = {table.begin(), table.begin() + static_cast<ptrdiff_t>(num_blocks)}};
  job.replaces = bad_keys_.contains(job.key);
  worker_.Push(std::move(job));
  const bool is_prefill = ParamsOf(request).do_remote_decode;
  KvEnding ending = {.keeps_blocks = true, .holds_output = is_prefill || !options_.loads};
  if (is_prefill) {
    ending.params = RemotePrefillParams(options_.engine_id, request.id(), num_tokens);
  }
  return ending;
}

void ExampleConnector::Report(KvTransferReport* report) {
  for (FolderJob& job : worker_.TakeDone()) {
    if (job.kind == FolderJob::Kind::kLookUp) {
      const auto entry = look_ups_.find(job.id);
      if (entry != look_ups_.end()) entry->second.found = job.found;
    } else if (job.kind == FolderJob::Kind::kStore) {
      NoteStored(job);
      if (!job.status.ok()) report->not_stored.push_back(job.id);
      report->released.push_back(job.id);
    } else if (job.status.ok()) {
      report->loaded.push_back(job.id);
    } else {
      LOG_WARNING << "KV of request " << job.id << " could not be loaded: " << job.status.message();
      if (job.found) bad_keys_.insert(job.key);
      report->failed_loads.push_back(job.id);
    }
  }
}

void ExampleConnector::NoteStored(const FolderJob& job) {
  num_blocks_to_store_ -= static_cast<int64_t>(job.blocks.size());
  if (job.status.ok()) {
    bad_keys_.erase(job.key);
  } else {
    NoteNotStored(job.id, job.status);
  }
}

// A full disk fails every store: the first failures are logged, then fewer and fewer.
void ExampleConnector::NoteNotStored(const RequestId& id, const Status& why) {
  if (!std::has_single_bit(static_cast<uint64_t>(++num_failed_stores_))) return;
  LOG_WARNING << "KV of request " << id << " could not be stored (" << num_failed_stores_
              << " so far): " << why.message();
}

}  // namespace tandem
