#pragma once

// A KV connector between engines: one prefills a request and holds its blocks, another one reads
// them straight into its own cache and decodes. By role an engine does one of the two, or both. The
// prefill's response carries NIXL's kv_transfer_params, with the ticket of a lease on the blocks;
// an engine that gets them in a request with do_remote_prefill reads the blocks of its prompt's
// hashes, or none. The choices of a prompt, which come with one ticket, read it once: the others
// wait, and find the blocks in their own cache. Requests without params are left alone. A lease
// ends when its reader has read, when a client gives it up, lease_s after the reader's last sign of
// life, or when younger ones need room: all of them have at most half of the cache. A load that
// failed for any reason is not tried again. Thread: engine loop, both halves; server and reader
// have their own. Failure: of a load, a report; in Create the system's, with the address. Reset
// forgets nothing: leases are promises.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/mailbox.h"
#include "common/status.h"
#include "engine_core/kv_remote/reader.h"
#include "engine_core/kv_remote/server.h"
#include "engine_core/kv_transfer/in_process_connector.h"
#include "engine_core/kv_transfer/kv_transfer_params.h"

namespace tandem {

struct TandemConnectorOptions {
  bool stores = true;
  bool loads = true;
  std::string engine_id = {};  // for kv_transfer_params
  KvServerOptions server = {};
  KvReaderOptions reader = {};
  // The engines that may be read from: values of remote_host; empty: any, other hosts only with
  // insecure_tcp.
  std::vector<std::string> peers = {};
  bool insecure_tcp = false;
};

class TandemConnector final : public InProcessConnector {
 public:
  // memory: a file of the cache for readers on this host; or none.
  static StatusOr<std::unique_ptr<TandemConnector>> Create(TandemConnectorOptions options,
                                                           const BlockParts& parts,
                                                           const KvShape& shape,
                                                           UniqueFd memory = {});

  bool OnAdded(const Request& request) override;
  void OnRefused(const RequestId& id, const wire::RawValue& extra_args) override;
  std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) override;
  wire::CountsByName Sources(const Request& /*request*/, int32_t /*num_local_tokens*/,
                             const KvMatch& match) const override {
    return {{"p2p", match.num_tokens}};
  }
  void OnAllocated(const Request& request, std::span<const BlockId> table, int32_t num_local_tokens,
                   const KvMatch& match) override;
  KvEnding OnFinished(const Request& request, wire::RequestStatus status,
                      std::span<const BlockId> table) override;
  void OnGivenUp(const RequestId& id) override {
    if (server_ != nullptr) server_->GiveUp(id);
  }

  void Report(KvTransferReport* report) override;
  bool is_busy() const override { return num_under_way_ > 0; }
  void WaitBriefly() override;

  const KvAddress& address() const { return server_->address(); }  // REQUIRES: stores

 private:
  // Where the KV of a request is that waits for it.
  struct Remote {
    Status why_not;  // it cannot be read
    KvAddress holder;
    KvTicket ticket;
    int32_t num_tokens = 0;
    bool is_waiting = true;  // no load has begun
  };
  // One kind, so that the loop can wait for whatever comes first.
  struct TransferEnd {
    std::optional<KvReadEnd> read = {};
    RequestId released = {};
  };

  TandemConnector(TandemConnectorOptions options, int32_t block_size)
      : options_(std::move(options)), block_size_(block_size) {}
  Remote RemoteOf(const KvTransferParams& params) const;
  Status CheckHolder(const KvAddress& holder) const;
  bool IsReading(const KvTicket& ticket) const;
  int32_t NumTokens(const Request& request) const;  // whose blocks are held or read; 0: none
  void EndRead(KvReadEnd end, KvTransferReport* report);

  const TandemConnectorOptions options_;
  const int32_t block_size_;
  std::unordered_map<RequestId, Remote> remotes_;  // of requests that have not ended
  // By what the ids of a prompt's choices share: the choice that has their lease, and its params.
  std::unordered_map<std::string, std::pair<RequestId, wire::RawValue>> shared_leases_;
  uint64_t num_leases_ = 0;
  int64_t num_under_way_ = 0;  // leases and reads
  std::vector<std::pair<RequestId, KvTicket>> reading_;
  Mailbox<TransferEnd> ends_;
  std::vector<TransferEnd> taken_;
  std::unique_ptr<KvServer> server_;  // null: it does not store
  std::unique_ptr<KvReader> reader_;  // null: it does not load
};

}  // namespace tandem
