#include "engine_core/kv_transfer/tandem_connector.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>

#include "common/check.h"
#include "common/log.h"
#include "engine_core/kv_transfer/prefix_key.h"
#include "engine_core/scheduler/request.h"
#include "proto_msgpack/choices.h"

namespace tandem {
namespace {

KvTransferParams ParamsOf(const Request& request) {
  return ReadKvTransferParams(request.wire.sampling_params.extra_args);
}

// By which the two engines name blocks: those of an adapter also by what its files were when they
// were read here, for the path may have others by now.
std::vector<BlockHash> NamesOf(const Request& request, size_t first, size_t count) {
  const auto hashes = std::span(request.block_hashes).subspan(first, count);
  std::vector<BlockHash> names(hashes.begin(), hashes.end());
  const uint64_t digest = request.extra_keys.adapter.digest;
  for (BlockHash& name : names) {
    for (size_t i = 0; i < sizeof(digest); ++i) {
      name.bytes[i] = static_cast<uint8_t>(name.bytes[i] ^ (digest >> 8 * i));
    }
  }
  return names;
}

KvTicket NewTicket(uint64_t lease) {
  KvTicket ticket = {.lease = lease};
  const auto size = static_cast<ssize_t>(ticket.secret.size());
  CHECK_EQ(getrandom(ticket.secret.data(), ticket.secret.size(), 0), size);
  return ticket;
}

}  // namespace

StatusOr<std::unique_ptr<TandemConnector>> TandemConnector::Create(TandemConnectorOptions options,
                                                                   const BlockParts& parts,
                                                                   const KvShape& shape,
                                                                   UniqueFd memory) {
  std::unique_ptr<TandemConnector> made(
      new TandemConnector(std::move(options), static_cast<int32_t>(shape.block_size)));
  Mailbox<TransferEnd>* ends = &made->ends_;
  if (made->options_.stores) {
    ASSIGN_OR_RETURN(made->server_, KvServer::Start(made->options_.server, parts, shape,
                                                    std::move(memory), [ends](RequestId id) {
                                                      ends->Push({.released = std::move(id)});
                                                    }));
  }
  if (made->options_.loads) {
    ASSIGN_OR_RETURN(made->reader_,
                     KvReader::Start(parts, shape, made->options_.reader, [ends](KvReadEnd end) {
                       ends->Push({.read = std::move(end)});
                     }));
  }
  return made;
}

int32_t TandemConnector::NumTokens(const Request& request) const {
  const auto num_hashed = static_cast<int32_t>(request.block_hashes.size()) * block_size_;
  return std::min(NumStoredTokens(request.num_prompt_tokens, block_size_), num_hashed);
}

// ---- reading ----

Status TandemConnector::CheckHolder(const KvAddress& holder) const {
  const std::string name = holder.RemoteHost();
  if (!options_.peers.empty() && std::ranges::find(options_.peers, name) == options_.peers.end()) {
    return Status(StatusCode::kPermissionDenied, "remote_host " + name + " is none of the peers");
  }
  if (holder.is_local() || options_.insecure_tcp) return OkStatus();
  return Status(StatusCode::kPermissionDenied,
                "remote_host " + name + " is another host, which \"insecure_tcp\" would allow");
}

TandemConnector::Remote TandemConnector::RemoteOf(const KvTransferParams& params) const {
  Remote remote;
  remote.num_tokens = params.remote_num_tokens.value_or(INT32_MAX);
  const std::optional<KvTicket> ticket = KvTicket::FromHex(params.remote_ticket);
  StatusOr<KvAddress> holder = KvAddress::OfRemote(params.remote_host, params.remote_port);
  if (ticket && holder.ok()) {
    remote.why_not = CheckHolder(*holder);
    remote.ticket = *ticket;
    remote.holder = *std::move(holder);
  } else if (params.remote_host.empty() || params.remote_ticket.empty()) {
    remote.why_not = InvalidArgumentError(
        "kv_transfer_params lack remote_host or remote_ticket, which a TandemConnector's prefill "
        "has in its response");
  } else {
    remote.why_not = ticket ? holder.status() : InvalidArgumentError("remote_ticket is none");
  }
  return remote;
}

bool TandemConnector::OnAdded(const Request& request) {
  if (!options_.loads || request.pools()) return false;
  const KvTransferParams params = ParamsOf(request);
  if (!params.do_remote_prefill) return false;
  const Remote& remote = remotes_.insert_or_assign(request.id(), RemoteOf(params)).first->second;
  if (remote.why_not.ok()) reader_->Hold(remote.holder, request.id(), remote.ticket);
  return true;
}

void TandemConnector::OnRefused(const RequestId& id, const wire::RawValue& extra_args) {
  const KvTransferParams params = ReadKvTransferParams(extra_args);
  if (!options_.loads || !params.do_remote_prefill) return;
  const Remote remote = RemoteOf(params);
  if (!remote.why_not.ok()) return;
  reader_->Hold(remote.holder, id, remote.ticket);
  reader_->Release(remote.holder, id);
}

bool TandemConnector::IsReading(const KvTicket& ticket) const {
  return std::ranges::any_of(reading_, [&](const auto& one) {
    return one.second.lease == ticket.lease && one.second.secret == ticket.secret;
  });
}

std::optional<KvMatch> TandemConnector::Match(const Request& request, int32_t num_local_tokens) {
  const auto found = remotes_.find(request.id());
  if (found == remotes_.end() || !found->second.is_waiting) return KvMatch{};
  if (IsReading(found->second.ticket)) return std::nullopt;
  const int32_t num_remote = std::max(found->second.num_tokens, 0) / block_size_ * block_size_;
  const int32_t num_tokens = std::min(NumTokens(request), num_remote) - num_local_tokens;
  return num_tokens > 0 ? KvMatch{num_tokens, true} : KvMatch{};
}

void TandemConnector::OnAllocated(const Request& request, std::span<const BlockId> table,
                                  int32_t num_local_tokens, const KvMatch& match) {
  const auto found = remotes_.find(request.id());
  if (found == remotes_.end() || !found->second.is_waiting) return;
  Remote& remote = found->second;
  remote.is_waiting = false;
  if (match.num_tokens == 0) {  // all of it is here
    if (remote.why_not.ok()) reader_->Release(remote.holder, request.id());
    return;
  }
  const auto first = static_cast<size_t>(num_local_tokens / block_size_);
  const auto count = static_cast<size_t>(match.num_tokens / block_size_);
  const auto blocks = table.subspan(first, count);
  KvReadJob job = {.id = request.id(),
                   .ticket = remote.ticket,
                   .first = static_cast<uint32_t>(first),
                   .blocks = {blocks.begin(), blocks.end()},
                   .hashes = NamesOf(request, first, count)};
  ++num_under_way_;
  reading_.emplace_back(job.id, job.ticket);
  if (!remote.why_not.ok()) {
    ends_.Push({.read = KvReadEnd{.id = job.id, .status = remote.why_not}});
    return;
  }
  BeginAfterSteps(
      [this, holder = remote.holder, job = std::move(job)] { reader_->Read(holder, job); });
}

void TandemConnector::EndRead(KvReadEnd end, KvTransferReport* report) {
  const auto reading =
      std::ranges::find(reading_, end.id, [](const auto& one) { return one.first; });
  if (reading != reading_.end()) reading_.erase(reading);
  if (!end.status.ok()) {
    LOG_WARNING << "KV of request " << end.id << " could not be read: " << end.status.message();
  }
  if (!end.status.ok() && !end.has_any) {
    report->failed_loads.push_back(std::move(end.id));
    return;
  }
  auto& failed = report->failed_blocks;
  failed.insert(failed.end(), end.failed_blocks.begin(), end.failed_blocks.end());
  report->loaded.push_back(std::move(end.id));
}

// ---- holding ----

KvEnding TandemConnector::OnFinished(const Request& request, wire::RequestStatus status,
                                     std::span<const BlockId> table) {
  if (const auto found = remotes_.find(request.id()); found != remotes_.end()) {
    const Remote& remote = found->second;
    if (remote.is_waiting && remote.why_not.ok()) reader_->Release(remote.holder, request.id());
    remotes_.erase(found);
  }
  const bool is_sound = status != wire::RequestStatus::kFinishedAborted &&
                        status != wire::RequestStatus::kFinishedError;
  if (!options_.stores || !is_sound || request.pools() ||
      request.status != wire::RequestStatus::kRunning || !ParamsOf(request).do_remote_decode) {
    return {};
  }
  const int32_t num_tokens = NumTokens(request);
  const auto num_blocks = static_cast<size_t>(num_tokens / block_size_);
  if (num_tokens == 0 || num_tokens > request.num_computed_tokens || num_blocks > table.size()) {
    return {};
  }
  const std::string shared = wire::SharedByChoices(request.id());
  if (const auto lease = shared_leases_.find(shared); lease != shared_leases_.end()) {
    return {.params = lease->second.second};
  }
  const auto blocks = table.first(num_blocks);
  const KvTicket ticket = NewTicket(++num_leases_);
  server_->Lease({.ticket = ticket,
                  .id = request.id(),
                  .blocks = {blocks.begin(), blocks.end()},
                  .hashes = NamesOf(request, 0, num_blocks)});
  ++num_under_way_;
  const KvAddress& address = server_->address();
  KvEnding ending = {.keeps_blocks = true,
                     .is_promised = true,
                     .params = RemotePrefillParams(options_.engine_id, request.id(), num_tokens,
                                                   RemoteBlocks{.host = address.RemoteHost(),
                                                                .port = address.port,
                                                                .ticket = ticket.ToHex(),
                                                                .blocks = blocks})};
  if (!shared.empty()) shared_leases_[shared] = {request.id(), ending.params};
  return ending;
}

// ---- the worker's half ----

void TandemConnector::Report(KvTransferReport* report) {
  ends_.Drain(&taken_);
  num_under_way_ -= static_cast<int64_t>(taken_.size());
  for (TransferEnd& end : taken_) {
    if (end.read) {
      EndRead(*std::move(end.read), report);
    } else {
      std::erase_if(shared_leases_,
                    [&](const auto& lease) { return lease.second.first == end.released; });
      report->released.push_back(std::move(end.released));
    }
  }
}

void TandemConnector::WaitBriefly() {
  if (is_busy()) (void)ends_.WaitFor(std::chrono::milliseconds(1));
}

}  // namespace tandem
