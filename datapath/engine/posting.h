// Posting, for all who fill transfers: arguments checked and noted in a list of operations.
#pragma once

#include "datapath/session/session.h"
#include "datapath/transfer/transfer_impl.h"
#include "fairlead/memory.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

/// One more piece of `list`, of a session that is usable(). What is not ok left it as it was.
Status append(SessionImpl& session, OpList& list, const Memory& local, const RemoteMemory& remote);

}  // namespace fairlead::datapath
