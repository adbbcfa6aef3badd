#include "tests/simulation/sim_connector.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

Status Breach(const RequestId& id, const std::string& what) {
  return InternalError("transfers of request " + id + ": " + what);
}

}  // namespace

SimConnector::SimConnector(uint64_t seed, SimExecutor* executor)
    : random_(seed), executor_(executor) {}

std::optional<KvMatch> SimConnector::Match(const Request& request, int32_t num_local_tokens) {
  const auto [asked, first] = asked_.try_emplace(request.id(), 0);
  if (first && random_.Chance(0.3)) asked->second = random_.Between(1, 4);
  if (asked->second > 0) {
    --asked->second;
    touched_.insert(request.id());
    was_busy_ = true;
    return std::nullopt;
  }
  if (random_.Chance(0.4)) return KvMatch{};
  const bool is_async = random_.Chance(0.6);
  const int32_t num_left = request.num_tokens() - num_local_tokens;
  return KvMatch{random_.Between(0, is_async ? num_left : num_left - 1), is_async};
}

void SimConnector::OnAllocated(const Request& request, std::span<const BlockId> table,
                               int32_t num_local_tokens, const KvMatch& match) {
  if (match.num_tokens == 0) {
    if (random_.Chance(0.15)) saves_[request.id()] = random_.Between(0, 6);
    return;
  }
  was_busy_ = true;
  touched_.insert(request.id());
  Load load;
  load.id = request.id();
  load.token_ids = request.token_ids;
  load.images = request.images;
  load.first_hash = executor_->FirstHashOf(request.id());
  load.table.assign(table.begin(), table.end());
  load.begin = num_local_tokens;
  load.end = load.failed_from = num_local_tokens + match.num_tokens;
  load.is_async = match.is_async;
  load.num_polls = match.is_async ? random_.Between(1, 6) : 0;
  load.begun_at_step = executor_->num_steps();
  if (random_.Chance(0.2)) load.failed_from = random_.Between(load.begin, load.end - 1);
  loads_.push_back(std::move(load));
  ++num_loads_;
}

KvEnding SimConnector::OnFinished(const Request& request, wire::RequestStatus,
                                  std::span<const BlockId> table) {
  asked_.erase(request.id());
  const bool was_saving = saves_.erase(request.id()) > 0;
  const bool keeps = !table.empty() && (was_saving || random_.Chance(0.2));
  if (keeps && request.load != KvLoad::kRunning) {
    kept_[request.id()] = {
        {table.begin(), table.end()}, random_.Between(0, 8), executor_->num_steps()};
    was_busy_ = true;
    ++num_kept_;
  }
  return {.keeps_blocks = keeps, .holds_output = keeps && random_.Chance(0.3)};
}

Status SimConnector::Work(KvTransferReport* report) {
  for (Load& load : loads_) {
    if (load.num_polls > 0) {
      --load.num_polls;
      if (load.failed_from < load.end && random_.Chance(0.3)) ReportFailure(&load, report);
      continue;
    }
    RETURN_IF_ERROR(Perform(load));
    const bool fails = load.failed_from < load.end;
    if (load.is_async && fails && !load.failure_reported && random_.Chance(0.3)) {
      failed_.insert(load.id);
      report->failed_loads.push_back(load.id);
    } else {
      if (fails) ReportFailure(&load, report);
      if (load.is_async) report->loaded.push_back(load.id);
    }
    load.num_polls = -1;
  }
  std::erase_if(loads_, [](const Load& load) { return load.num_polls < 0; });
  for (auto& [id, num_polls] : saves_) --num_polls;
  std::erase_if(saves_, [](const auto& save) { return save.second < 0; });
  for (auto& [id, kept] : kept_) {
    if (--kept.num_polls >= 0) continue;
    for (BlockId block : kept.table) {
      if (executor_->LastChange(block) > kept.num_steps) {
        return Breach(id, "a kept block was changed");
      }
    }
    report->released.push_back(id);
  }
  std::erase_if(kept_, [](const auto& kept) { return kept.second.num_polls < 0; });
  const bool has_report = !report->loaded.empty() || !report->failed_blocks.empty() ||
                          !report->failed_loads.empty() || !report->released.empty();
  if (has_report) last_report_at_step_ = executor_->num_steps();
  return OkStatus();
}

// Writes the KV; after a failure it is garbage.
Status SimConnector::Perform(const Load& load) {
  uint64_t hash = load.first_hash;
  for (int32_t p = 0; p < load.end; ++p) {
    hash = ExtendPrefixHash(hash, InputAt(load.images.get(), load.token_ids, p));
    if (p < load.begin) continue;
    const BlockId block = load.table[static_cast<size_t>(p / executor_->limits().block_size)];
    if (load.is_async && executor_->LastWrite(block) > load.begun_at_step) {
      return Breach(load.id, "a block was written to while it was loaded");
    }
    executor_->WriteKv(block, p, p < load.failed_from ? hash : ~hash);
  }
  return OkStatus();
}

void SimConnector::ReportFailure(Load* load, KvTransferReport* report) {
  if (load->failure_reported) return;
  load->failure_reported = true;
  failed_.insert(load->id);
  const int32_t block_size = executor_->limits().block_size;
  for (int32_t b = (load->end - 1) / block_size; b >= load->failed_from / block_size; --b) {
    report->failed_blocks.push_back(load->table[static_cast<size_t>(b)]);
    if (!load->is_async) Distrust(report->failed_blocks.back());
  }
}

// Requests that load asynchronously may have found it in the pass that admitted its request.
void SimConnector::Distrust(BlockId block) {
  executor_->Distrust(block);
  for (const Load& load : loads_) {
    const bool has_it = std::find(load.table.begin(), load.table.end(), block) != load.table.end();
    if (load.is_async && has_it) executor_->NoteHolderOfGarbage(load.id);
  }
}

bool SimConnector::TakeWasBusy() {
  const bool is_busy = IsBusy();
  return std::exchange(was_busy_, is_busy) || is_busy;
}

bool SimConnector::IsBusy() const {
  const bool has_unread_report = last_report_at_step_ > executor_->num_collected_steps();
  return has_unread_report || !loads_.empty() || !kept_.empty() || !saves_.empty();
}

std::vector<RequestId> SimConnector::Saving() const {
  std::vector<RequestId> ids;
  for (const auto& [id, num_polls] : saves_) ids.push_back(id);
  return ids;
}

}  // namespace tandem
