#include "engine_core/kv_transfer/file_tier.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"
#include "engine_core/kv_transfer/tier_events.h"
#include "proto_msgpack/offload_series.h"

namespace tandem {
namespace {

namespace offload = wire::offload;

constexpr double kMostStall = 1;  // seconds
constexpr double kMib = 1 << 20;

double Now() { return SystemClock().Monotonic(); }

}  // namespace

FileTier::FileTier(const FileTierOptions& options, std::unique_ptr<BlockFolder> folder,
                   HostBlocks host, ConnectorCounts* counts)
    : host_(std::move(host)),
      counts_(counts),
      events_(options.events),
      max_files_(static_cast<size_t>(options.max_bytes / folder->bytes_per_file())),
      max_writing_(static_cast<size_t>(std::max(host_.num_blocks / 4, 1))),
      folder_(std::move(folder)),
      worker_(folder_.get(), options.num_readers) {}

void FileTier::Offer(std::span<const Stored> blocks) {
  const auto most = static_cast<size_t>(host_.num_blocks);
  int64_t num_dropped = 0;
  // The end of a prefix first: it is lost first, in memory and of the files, and being written is a
  // use.
  for (size_t i = blocks.size(); i > 0; --i) {
    const Stored& block = blocks[i - 1];
    if (files_.Touch(block.hash) || HasFile(block.hash)) continue;
    if (CanWrite()) {
      StartWrite(block);
    } else if (backlog_.size() < most) {
      backlog_.push_back(block.hash);
    } else {
      ++num_dropped;
    }
  }
  CountDropped(num_dropped);
}

void FileTier::StartWrite(const Stored& block) {
  TrimTo(max_files_ - 1);
  host_.pool->Hold(block.host_block);
  writing_.insert(block.hash);
  worker_.Push({.kind = BlockFileJob::Kind::kWrite,
                .hash = block.hash,
                .host_block = block.host_block,
                .bytes = host_.bytes_of(block.host_block)});
}

void FileTier::WriteBacklog() {
  int64_t num_dropped = 0;
  while (!backlog_.empty() && CanWrite()) {
    const BlockHash hash = backlog_.front();
    backlog_.pop_front();
    if (HasFile(hash)) continue;
    const std::optional<BlockId> block = host_.pool->Find(hash);
    if (block) {
      StartWrite({hash, *block});
    } else {
      ++num_dropped;
    }
  }
  CountDropped(num_dropped);
}

void FileTier::CountDropped(int64_t num_blocks) {
  if (num_blocks == 0) return;
  counts_->Add(offload::kStoresDropped, 1, {offload::kFileTier});
  counts_->Add(offload::kBlocksDropped, static_cast<double>(num_blocks), {offload::kFileTier});
}

// Counting those that are being written.
void FileTier::TrimTo(size_t num_files) {
  std::vector<BlockHash> removes;
  while (files_.size() > 0 && files_.size() + writing_.size() > num_files) {
    removes.push_back(files_.oldest());
    EraseFile(removes.back());
  }
  if (removes.empty()) return;
  worker_.Push({.kind = BlockFileJob::Kind::kRemove, .hashes = std::move(removes)});
}

void FileTier::EraseFile(const BlockHash& hash) {
  if (files_.Has(hash)) AddRemoved(KvMedium::kFiles, hash, events_);
  files_.Erase(hash);
}

// ---- loads ----

bool FileTier::Awaits(const RequestId& id, std::span<const BlockHash> hashes) {
  Settle();
  if (const auto found = promotions_.find(id); found != promotions_.end()) {
    return StillReads(&found->second);
  }
  const double begin = Now();
  const Run run = Look(hashes);
  counts_->Observe(offload::kTierLookupSyncDelay, Now() - begin, {offload::kFileTier});
  if (run.num_reads == 0 || IsStalled()) return false;
  // Requests that have their blocks will free them: others can wait for that.
  const bool is_too_much = num_held_ + run.num_blocks > static_cast<size_t>(host_.num_blocks) / 2;
  if (is_too_much && !promotions_.empty()) return true;
  return Begin(id, hashes.first(run.num_blocks));
}

FileTier::Run FileTier::Look(std::span<const BlockHash> hashes) {
  Run run;
  size_t num_hits = 0;
  for (const BlockHash& hash : hashes) {
    const bool is_in_memory = host_.pool->Find(hash).has_value();
    if (!is_in_memory && !reading_.contains(hash) && !files_.Has(hash)) break;
    ++run.num_blocks;
    is_in_memory ? ++num_hits : ++run.num_reads;
  }
  // The block that ended it was looked for in both.
  const size_t num_ends = run.num_blocks < hashes.size() ? 1 : 0;
  const auto add = [&](std::string_view name, size_t count, std::string_view tier) {
    if (count > 0) counts_->Add(name, static_cast<double>(count), {tier});
  };
  add(offload::kChunkQueries, run.num_blocks + num_ends, offload::kPrimaryTier);
  add(offload::kChunkHits, num_hits, offload::kPrimaryTier);
  add(offload::kChunkQueries, run.num_reads + num_ends, offload::kFileTier);
  add(offload::kChunkHits, run.num_reads, offload::kFileTier);
  return run;
}

// What is in memory is held first, so that room for the others is not made of it.
bool FileTier::Begin(const RequestId& id, std::span<const BlockHash> hashes) {
  Promotion promotion = {.begin = Now()};
  std::vector<BlockHash> missing;
  for (const BlockHash& hash : hashes) {
    std::optional<BlockId> block = host_.pool->Find(hash);
    if (const auto read = reading_.find(hash); !block && read != reading_.end()) {
      block = read->second;
      promotion.reads.push_back(hash);
    }
    if (!block) {
      missing.push_back(hash);
      continue;
    }
    host_.pool->Hold(*block);
    promotion.held.push_back(*block);
  }
  for (const BlockHash& hash : missing) {
    if (host_.pool->num_free() == 0) {
      counts_->Add(offload::kPromotionAllocationFailures, 1);
      break;
    }
    StartRead(hash, &promotion);
  }
  for (size_t i = hashes.size(); i > 0; --i) files_.Touch(hashes[i - 1]);
  if (promotion.reads.empty()) {
    host_.pool->Free(promotion.held);
    return false;
  }
  num_held_ += promotion.held.size();
  promotions_.emplace(id, std::move(promotion));
  return true;
}

// The read holds its block as well: it goes on when the request has ended.
void FileTier::StartRead(const BlockHash& hash, Promotion* promotion) {
  BlockId block{};
  host_.pool->Allocate({&block, 1});
  host_.pool->Hold(block);
  promotion->held.push_back(block);
  promotion->reads.push_back(hash);
  if (reading_.empty()) read_at_ = Now();
  reading_.emplace(hash, block);
  worker_.Push({.kind = BlockFileJob::Kind::kRead,
                .hash = hash,
                .host_block = block,
                .bytes = host_.bytes_of(block)});
}

bool FileTier::StillReads(Promotion* promotion) {
  if (promotion->is_done) return false;
  const auto is_read = [&](const BlockHash& hash) { return reading_.contains(hash); };
  if (!IsStalled() && std::ranges::any_of(promotion->reads, is_read)) return true;
  promotion->is_done = true;
  const auto is_there = [&](const BlockHash& hash) { return host_.pool->Find(hash).has_value(); };
  const bool is_whole = std::ranges::all_of(promotion->reads, is_there);
  const double seconds = Now() - promotion->begin;
  counts_->Observe(offload::kLookupAsyncDelay, seconds);
  counts_->Observe(offload::kTierLookupAsyncDelay, seconds, {offload::kFileTier});
  counts_->Observe(offload::kPromotionLatency, seconds,
                   {offload::kFileTier, is_whole ? "success" : "failure"});
  if (!is_whole) counts_->Add(offload::kPromotionFailures, 1, {offload::kFileTier});
  return false;
}

bool FileTier::IsStalled() const { return is_reading() && Now() - read_at_ > kMostStall; }

int64_t FileTier::NumRead(const RequestId& id, std::span<const BlockHash> hashes) const {
  const auto found = promotions_.find(id);
  if (found == promotions_.end()) return 0;
  const std::vector<BlockHash>& reads = found->second.reads;
  const std::unordered_set<BlockHash, BlockLru::Bits> read(reads.begin(), reads.end());
  return std::ranges::count_if(hashes, [&](const auto& hash) { return read.contains(hash); });
}

void FileTier::Forget(const RequestId& id) {
  const auto found = promotions_.find(id);
  if (found == promotions_.end()) return;
  const Promotion& promotion = found->second;
  if (!promotion.is_done) counts_->Observe(offload::kLookupAsyncDelay, Now() - promotion.begin);
  num_held_ -= promotion.held.size();
  host_.pool->Free(promotion.held);
  promotions_.erase(found);
}

// ---- what the worker has done ----

void FileTier::Settle() {
  for (const BlockFileJob& job : worker_.TakeDone()) {
    if (job.kind == BlockFileJob::Kind::kScan) EndScan(job);
    if (job.kind == BlockFileJob::Kind::kRead) EndRead(job);
    if (job.kind == BlockFileJob::Kind::kWrite) EndWrite(job);
  }
  WriteBacklog();
}

void FileTier::EndScan(const BlockFileJob& job) {
  for (size_t i = job.hashes.size(); i > 0; --i) files_.AddOldest(job.hashes[i - 1]);
  AddStored(KvMedium::kFiles, job.hashes, events_);
  knows_files_ = true;
  LOG_INFO << "KV offloading: found " << WithCommas(static_cast<int64_t>(job.hashes.size()))
           << " KV blocks in " << folder_->path();
  TrimTo(max_files_);  // a process with a higher limit may have left them
}

void FileTier::EndRead(const BlockFileJob& job) {
  read_at_ = Now();
  reading_.erase(job.hash);
  if (job.status.ok()) {
    if (!host_.pool->Find(job.hash)) AddStored(KvMedium::kHostMemory, {job.hash}, events_);
    host_.pool->Register(job.host_block, job.hash);
    counts_->Add(offload::kTierReadBytes, static_cast<double>(job.bytes.size()),
                 {offload::kFileTier});
    counts_->Add(offload::kTierReadTime, job.seconds, {offload::kFileTier});
  } else {
    EraseFile(job.hash);
    NoteFailure("read", job.status);
  }
  host_.pool->Free({&job.host_block, 1});
}

void FileTier::EndWrite(const BlockFileJob& job) {
  writing_.erase(job.hash);
  host_.pool->Free({&job.host_block, 1});
  if (!job.status.ok()) {
    counts_->Add(offload::kCascadeFailures, 1, {offload::kFileTier});
    NoteFailure("written", job.status);
    const bool is_full = job.status.code() == StatusCode::kResourceExhausted;
    if (is_full) max_files_ = std::max<size_t>(std::min(max_files_, files_.size()), 1);
    return;
  }
  if (!files_.Has(job.hash)) AddStored(KvMedium::kFiles, {job.hash}, events_);
  files_.Add(job.hash);
  const auto num_bytes = static_cast<double>(job.bytes.size());
  counts_->Add(offload::kTierWriteBytes, num_bytes, {offload::kFileTier});
  counts_->Add(offload::kTierWriteTime, job.seconds, {offload::kFileTier});
  const double latest = job.seconds / (num_bytes / kMib);
  seconds_per_mib_ = seconds_per_mib_ == 0 ? latest : 0.9 * seconds_per_mib_ + 0.1 * latest;
}

// A full disk fails every write: the first failures are logged, then fewer and fewer.
void FileTier::NoteFailure(std::string_view what, const Status& status) {
  if (!std::has_single_bit(static_cast<uint64_t>(++num_failures_))) return;
  LOG_WARNING << "KV block could not be " << what << " (" << num_failures_
              << " failures so far): " << status.message();
}

void FileTier::Clear() {
  std::vector<BlockHash> removes(files_.order().begin(), files_.order().end());
  for (const BlockHash& hash : removes) AddRemoved(KvMedium::kFiles, hash, events_);
  files_.Clear();
  backlog_.clear();
  worker_.Push({.kind = BlockFileJob::Kind::kRemove, .hashes = std::move(removes)});
}

void FileTier::SetGauges() {
  const auto share = [&](size_t num) { return static_cast<double>(num) / host_.num_blocks; };
  const auto is_active = [](const auto& one) { return !one.second.is_done; };
  const auto num_promotions = std::ranges::count_if(promotions_, is_active);
  counts_->Set(offload::kPrimaryWriteUsage, share(num_reading()), {offload::kFileTier});
  counts_->Set(offload::kPrimaryReadUsage, share(num_writing()), {offload::kFileTier});
  counts_->Set(offload::kActivePromotions, static_cast<double>(num_promotions),
               {offload::kFileTier});
  counts_->Set(offload::kActiveCascades, static_cast<double>(num_writing()), {offload::kFileTier});
  counts_->Set(offload::kStoreLatency, seconds_per_mib_, {offload::kFileTier});
}

}  // namespace tandem
