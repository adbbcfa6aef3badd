#pragma once

// The adapters of a server: loads them into all engines, takes them out, and gives every shard the
// list of those that requests may name. It belongs to one shard, the owner. Loads and unloads run
// one at a time, in the order in which they were asked for; a name is served once the engines have
// its weights and every shard knows it, and stops being served before the engines drop them.
// A load in place changes all engines or none: with several of ours each reads the files first and
// takes them on a second call. One of another program takes them at once; where others then refuse,
// the name stops being served.
// Engines load an adapter that they lack when a request names it, so what is sent to an engine that
// comes later only saves that request the wait.
// Thread: the owner's shard, unless noted. Borrows everything.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "frontend/adapters/adapter_folders.h"
#include "frontend/adapters/adapter_table.h"
#include "frontend/engine_client/utility_calls.h"
#include "frontend/net/net.h"

namespace tandem {

class AdapterDirectory {
 public:
  struct Calls {
    int num_engines = 1;
    // OK, or why the engine is not ready.
    std::function<Status(int engine)> check_engine;
    // Adapters that a ready engine runs together; 0: it serves none.
    std::function<int(int engine)> num_slots;
    // A Tandem engine, which may know an adapter from a process before this one.
    std::function<bool(int engine)> is_ours;
    std::function<void(int engine, std::string_view method, wire::RawValue args,
                       UtilityCalls::Callback callback)>
        call_engine;
    // Gives each shard the list; done runs on the owner's shard once all have it. loaded: null, or
    // what was read from its folder for it: requests that run have what was there before.
    std::function<void(ServedAdaptersPtr adapters, const wire::LoraRequest* loaded,
                       std::function<void()> done)>
        publish;
    // Once: all engines have what Begin was given, or why one cannot have it.
    std::function<void(const Status& status)> on_begun;
    // Another frontend process is about to take over, or has.
    std::function<bool()> is_handing_over;
  };

  // base_names: of the model itself.
  AdapterDirectory(std::vector<std::string> base_names, Shard* owner, const Clock* clock,
                   Calls calls, AdapterFolders folders = AdapterFolders());
  AdapterDirectory(const AdapterDirectory&) = delete;

  // Main thread, before the owner starts: the modules of the flags, and what the process before has
  // shared, or "". Until has_begun the engines lack some of it, and the server is not to serve.
  Status Begin(const std::vector<AdapterModule>& modules, std::string_view inherited);
  bool has_begun() const { return has_begun_; }
  const ServedAdaptersPtr& served() const { return table_.served(); }
  // Whether the adapter's files are no longer those that were read when it was loaded, though
  // nobody has asked for a load. Any thread; waits for the disk.
  static bool HasOtherFiles(const ServedAdapters& adapters, const wire::LoraRequest& lora);
  // Of adapters that requests may name before they are loaded. Any thread.
  const AdapterFolders& folders() const { return folders_; }

  // Any shard. INVALID_ARGUMENT and NOT_FOUND: what is wrong with the call or the adapter.
  // UNAVAILABLE: no engine is there, or another process takes over. DEADLINE_EXCEEDED: an engine
  // does not reply.
  Awaitable<Status> Load(AdapterModule module, bool in_place);
  Awaitable<Status> Unload(std::string name);
  // As Load, for requests that name an adapter which is in a folder: however many name it, it is
  // loaded once, and one that could not be loaded fails at once for some seconds. UNAVAILABLE also
  // where too many others are being loaded.
  Awaitable<Status> Resolve(AdapterModule module);

  // An engine is there, a new one or one that takes over from another.
  void OnEngineReady(int engine);
  // The list for the next process; empty: there never was one. UNAVAILABLE while it is about to
  // change.
  StatusOr<std::string> Share() const;

 private:
  using Reply = std::function<void(Status)>;
  using Results = std::vector<Status>;  // of each engine

  void Enqueue(std::function<void()> operation);
  void RunNext();
  void EndOperation(const Reply& reply, const Status& status);
  Status CheckMayChange() const;

  void BeginLoad(const AdapterModule& module, bool in_place, const Reply& reply);
  void OnLoaded(const ServedAdapter& adapter, const Results& results, const Reply& reply);
  void BeginReplace(const ServedAdapter& adapter, const Reply& reply);
  void OnStaged(const ServedAdapter& adapter, const Results& results, const Reply& reply);
  void OnNotStaged(const ServedAdapter& adapter, const Results& results, const Status& why,
                   const Reply& reply);
  void EndLoad(const ServedAdapter& adapter, const Results& results, const Reply& reply);
  void BeginResolve(const AdapterModule& module, Reply reply);
  void EndResolve(const std::string& name, const Status& status);
  void BeginUnload(const std::string& name, const Reply& reply);
  void OnUnloaded(const wire::LoraRequest& lora, const Results& results, const Reply& reply);
  void CallEngines(const std::function<void(int engine, UtilityCalls::Callback)>& call,
                   std::function<void(const Results&)> done);
  // Reads the files, also if an engine of ours has the adapter already.
  void SendLoad(int engine, wire::LoraRequest lora, bool in_place, UtilityCalls::Callback callback);
  void SendStage(int engine, const wire::LoraRequest& lora, UtilityCalls::Callback callback);
  void SendSettle(int engine, const wire::LoraRequest& lora, bool takes_place,
                  UtilityCalls::Callback callback);
  void SendUnload(int engine, const wire::LoraRequest& lora, UtilityCalls::Callback callback);
  Status CheckServesAdapters(int engine) const;

  void SendAtBegin(int engine);
  void OnSentAtBegin(int engine, const wire::LoraRequest& lora, const Status& status);
  void SendAgain(int engine, const ServedAdapter& adapter);

  Shard* const owner_;
  const Clock* const clock_;
  const Calls calls_;
  const AdapterFolders folders_;
  AdapterTable table_;
  bool has_begun_ = true;
  std::vector<wire::LoraRequest> begin_with_;  // what the engines may lack until then
  std::vector<size_t> num_unsent_;             // of these: by engine
  bool is_busy_ = false;                       // an operation runs
  std::deque<std::function<void()>> waiting_;
  std::map<std::string, std::vector<Reply>> resolving_;  // by name
  struct Failure {
    Status status;
    double until = 0;  // monotonic
  };
  std::map<std::string, Failure> failures_;  // of Resolve, by name
};

}  // namespace tandem
