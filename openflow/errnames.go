// SPDX-License-Identifier: Apache-2.0

package openflow

// errorName returns the name that Open vSwitch gives to a standard error, or
// "".
func errorName(typ, code uint16) string {
	switch uint32(typ)<<16 | uint32(code) {
	case 0<<16 | 0:
		return "OFPHFC_INCOMPATIBLE"
	case 0<<16 | 1:
		return "OFPHFC_EPERM"
	case 1<<16 | 0:
		return "OFPBRC_BAD_VERSION"
	case 1<<16 | 1:
		return "OFPBRC_BAD_TYPE"
	case 1<<16 | 2:
		return "OFPBRC_BAD_STAT"
	case 1<<16 | 3:
		return "OFPBRC_BAD_VENDOR"
	case 1<<16 | 4:
		return "OFPBRC_BAD_SUBTYPE"
	case 1<<16 | 5:
		return "OFPBRC_EPERM"
	case 1<<16 | 6:
		return "OFPBRC_BAD_LEN"
	case 1<<16 | 7:
		return "OFPBRC_BUFFER_EMPTY"
	case 1<<16 | 8:
		return "OFPBRC_BUFFER_UNKNOWN"
	case 1<<16 | 9:
		return "OFPBRC_BAD_TABLE_ID"
	case 1<<16 | 10:
		return "OFPBRC_IS_SECONDARY"
	case 1<<16 | 11:
		return "OFPBRC_BAD_PORT"
	case 1<<16 | 12:
		return "OFPBRC_BAD_PACKET"
	case 1<<16 | 13:
		return "OFPBRC_MULTIPART_BUFFER_OVERFLOW"
	case 1<<16 | 14:
		return "OFPBRC_MULTIPART_REQUEST_TIMEOUT"
	case 1<<16 | 15:
		return "OFPBRC_MULTIPART_REPLY_TIMEOUT"
	case 2<<16 | 0:
		return "OFPBAC_BAD_TYPE"
	case 2<<16 | 1:
		return "OFPBAC_BAD_LEN"
	case 2<<16 | 2:
		return "OFPBAC_BAD_VENDOR"
	case 2<<16 | 3:
		return "OFPBAC_BAD_VENDOR_TYPE"
	case 2<<16 | 4:
		return "OFPBAC_BAD_OUT_PORT"
	case 2<<16 | 5:
		return "OFPBAC_BAD_ARGUMENT"
	case 2<<16 | 6:
		return "OFPBAC_EPERM"
	case 2<<16 | 7:
		return "OFPBAC_TOO_MANY"
	case 2<<16 | 8:
		return "OFPBAC_BAD_QUEUE"
	case 2<<16 | 9:
		return "OFPBAC_BAD_OUT_GROUP"
	case 2<<16 | 10:
		return "OFPBAC_MATCH_INCONSISTENT"
	case 2<<16 | 11:
		return "OFPBAC_UNSUPPORTED_ORDER"
	case 2<<16 | 12:
		return "OFPBAC_BAD_TAG"
	case 2<<16 | 13:
		return "OFPBAC_BAD_SET_TYPE"
	case 2<<16 | 14:
		return "OFPBAC_BAD_SET_LEN"
	case 2<<16 | 15:
		return "OFPBAC_BAD_SET_ARGUMENT"
	case 3<<16 | 0:
		return "OFPBIC_UNKNOWN_INST"
	case 3<<16 | 1:
		return "OFPBIC_UNSUP_INST"
	case 3<<16 | 2:
		return "OFPBIC_BAD_TABLE_ID"
	case 3<<16 | 3:
		return "OFPBIC_UNSUP_METADATA"
	case 3<<16 | 4:
		return "OFPBIC_UNSUP_METADATA_MASK"
	case 3<<16 | 5:
		return "OFPBIC_BAD_EXPERIMENTER"
	case 3<<16 | 6:
		return "OFPBIC_BAD_EXP_TYPE"
	case 3<<16 | 7:
		return "OFPBIC_BAD_LEN"
	case 3<<16 | 8:
		return "OFPBIC_EPERM"
	case 3<<16 | 9:
		return "OFPBIC_DUP_INST"
	case 4<<16 | 0:
		return "OFPBMC_BAD_TYPE"
	case 4<<16 | 1:
		return "OFPBMC_BAD_LEN"
	case 4<<16 | 2:
		return "OFPBMC_BAD_TAG"
	case 4<<16 | 3:
		return "OFPBMC_BAD_DL_ADDR_MASK"
	case 4<<16 | 4:
		return "OFPBMC_BAD_NW_ADDR_MASK"
	case 4<<16 | 5:
		return "OFPBMC_BAD_WILDCARDS"
	case 4<<16 | 6:
		return "OFPBMC_BAD_FIELD"
	case 4<<16 | 7:
		return "OFPBMC_BAD_VALUE"
	case 4<<16 | 8:
		return "OFPBMC_BAD_MASK"
	case 4<<16 | 9:
		return "OFPBMC_BAD_PREREQ"
	case 4<<16 | 10:
		return "OFPBMC_DUP_FIELD"
	case 4<<16 | 11:
		return "OFPBMC_EPERM"
	case 5<<16 | 0:
		return "OFPFMFC_UNKNOWN"
	case 5<<16 | 1:
		return "OFPFMFC_TABLE_FULL"
	case 5<<16 | 2:
		return "OFPFMFC_BAD_TABLE_ID"
	case 5<<16 | 3:
		return "OFPFMFC_OVERLAP"
	case 5<<16 | 4:
		return "OFPFMFC_EPERM"
	case 5<<16 | 5:
		return "OFPFMFC_BAD_TIMEOUT"
	case 5<<16 | 6:
		return "OFPFMFC_BAD_COMMAND"
	case 5<<16 | 7:
		return "OFPFMFC_BAD_FLAGS"
	case 5<<16 | 8:
		return "OFPFMFC_CANT_SYNC"
	case 5<<16 | 9:
		return "OFPFMFC_BAD_PRIORITY"
	case 5<<16 | 10:
		return "OFPFMFC_IS_SYNC"
	case 6<<16 | 0:
		return "OFPGMFC_GROUP_EXISTS"
	case 6<<16 | 1:
		return "OFPGMFC_INVALID_GROUP"
	case 6<<16 | 2:
		return "OFPGMFC_WEIGHT_UNSUPPORTED"
	case 6<<16 | 3:
		return "OFPGMFC_OUT_OF_GROUPS"
	case 6<<16 | 4:
		return "OFPGMFC_OUT_OF_BUCKETS"
	case 6<<16 | 5:
		return "OFPGMFC_CHAINING_UNSUPPORTED"
	case 6<<16 | 6:
		return "OFPGMFC_WATCH_UNSUPPORTED"
	case 6<<16 | 7:
		return "OFPGMFC_LOOP"
	case 6<<16 | 8:
		return "OFPGMFC_UNKNOWN_GROUP"
	case 6<<16 | 9:
		return "OFPGMFC_CHAINED_GROUP"
	case 6<<16 | 10:
		return "OFPGMFC_BAD_TYPE"
	case 6<<16 | 11:
		return "OFPGMFC_BAD_COMMAND"
	case 6<<16 | 12:
		return "OFPGMFC_BAD_BUCKET"
	case 6<<16 | 13:
		return "OFPGMFC_BAD_WATCH"
	case 6<<16 | 14:
		return "OFPGMFC_EPERM"
	case 7<<16 | 0:
		return "OFPPMFC_BAD_PORT"
	case 7<<16 | 1:
		return "OFPPMFC_BAD_HW_ADDR"
	case 7<<16 | 2:
		return "OFPPMFC_BAD_CONFIG"
	case 7<<16 | 3:
		return "OFPPMFC_BAD_ADVERTISE"
	case 7<<16 | 4:
		return "OFPPMFC_EPERM"
	case 8<<16 | 0:
		return "OFPTMFC_BAD_TABLE"
	case 8<<16 | 1:
		return "OFPTMFC_BAD_CONFIG"
	case 8<<16 | 2:
		return "OFPTMFC_EPERM"
	case 9<<16 | 0:
		return "OFPQOFC_BAD_PORT"
	case 9<<16 | 1:
		return "OFPQOFC_BAD_QUEUE"
	case 9<<16 | 2:
		return "OFPQOFC_EPERM"
	case 10<<16 | 0:
		return "OFPSCFC_BAD_FLAGS"
	case 10<<16 | 1:
		return "OFPSCFC_BAD_LEN"
	case 10<<16 | 2:
		return "OFPSCFC_EPERM"
	case 11<<16 | 0:
		return "OFPRRFC_STALE"
	case 11<<16 | 1:
		return "OFPRRFC_UNSUP"
	case 11<<16 | 2:
		return "OFPRRFC_BAD_ROLE"
	case 12<<16 | 0:
		return "OFPMMFC_UNKNOWN"
	case 12<<16 | 1:
		return "OFPMMFC_METER_EXISTS"
	case 12<<16 | 2:
		return "OFPMMFC_INVALID_METER"
	case 12<<16 | 3:
		return "OFPMMFC_UNKNOWN_METER"
	case 12<<16 | 4:
		return "OFPMMFC_BAD_COMMAND"
	case 12<<16 | 5:
		return "OFPMMFC_BAD_FLAGS"
	case 12<<16 | 6:
		return "OFPMMFC_BAD_RATE"
	case 12<<16 | 7:
		return "OFPMMFC_BAD_BURST"
	case 12<<16 | 8:
		return "OFPMMFC_BAD_BAND"
	case 12<<16 | 9:
		return "OFPMMFC_BAD_BAND_VALUE"
	case 12<<16 | 10:
		return "OFPMMFC_OUT_OF_METERS"
	case 12<<16 | 11:
		return "OFPMMFC_OUT_OF_BANDS"
	case 13<<16 | 0:
		return "OFPTFFC_BAD_TABLE"
	case 13<<16 | 1:
		return "OFPTFFC_BAD_METADATA"
	case 13<<16 | 2:
		return "OFPBPC_BAD_TYPE"
	case 13<<16 | 3:
		return "OFPBPC_BAD_LEN"
	case 13<<16 | 4:
		return "OFPBPC_BAD_VALUE"
	case 13<<16 | 5:
		return "OFPTFFC_EPERM"
	case 14<<16 | 0:
		return "OFPBPC_BAD_TYPE"
	case 14<<16 | 1:
		return "OFPBPC_BAD_LEN"
	case 14<<16 | 2:
		return "OFPBPC_BAD_VALUE"
	case 14<<16 | 3:
		return "OFPBPC_TOO_MANY"
	case 14<<16 | 4:
		return "OFPBPC_DUP_TYPE"
	case 14<<16 | 5:
		return "OFPBPC_BAD_EXPERIMENTER"
	case 14<<16 | 6:
		return "OFPBPC_BAD_EXP_TYPE"
	case 14<<16 | 7:
		return "OFPBPC_BAD_EXP_VALUE"
	case 14<<16 | 8:
		return "OFPBPC_EPERM"
	case 15<<16 | 0:
		return "OFPACFC_INVALID"
	case 15<<16 | 1:
		return "OFPACFC_UNSUPPORTED"
	case 15<<16 | 2:
		return "OFPACFC_EPERM"
	case 16<<16 | 0:
		return "OFPMOFC_UNKNOWN"
	case 16<<16 | 1:
		return "OFPMOFC_MONITOR_EXISTS"
	case 16<<16 | 2:
		return "OFPMOFC_INVALID_MONITOR"
	case 16<<16 | 3:
		return "OFPMOFC_UNKNOWN_MONITOR"
	case 16<<16 | 4:
		return "OFPMOFC_BAD_COMMAND"
	case 16<<16 | 5:
		return "OFPMOFC_BAD_FLAGS"
	case 16<<16 | 6:
		return "OFPMOFC_BAD_TABLE_ID"
	case 16<<16 | 7:
		return "OFPMOFC_BAD_OUT"
	case 17<<16 | 0:
		return "OFPBFC_UNKNOWN"
	case 17<<16 | 1:
		return "OFPBFC_EPERM"
	case 17<<16 | 2:
		return "OFPBFC_BAD_ID"
	case 17<<16 | 3:
		return "OFPBFC_BUNDLE_EXIST"
	case 17<<16 | 4:
		return "OFPBFC_BUNDLE_CLOSED"
	case 17<<16 | 5:
		return "OFPBFC_OUT_OF_BUNDLES"
	case 17<<16 | 6:
		return "OFPBFC_BAD_TYPE"
	case 17<<16 | 7:
		return "OFPBFC_BAD_FLAGS"
	case 17<<16 | 8:
		return "OFPBFC_MSG_BAD_LEN"
	case 17<<16 | 9:
		return "OFPBFC_MSG_BAD_XID"
	case 17<<16 | 10:
		return "OFPBFC_MSG_UNSUP"
	case 17<<16 | 11:
		return "OFPBFC_MSG_CONFLICT"
	case 17<<16 | 12:
		return "OFPBFC_MSG_TOO_MANY"
	case 17<<16 | 13:
		return "OFPBFC_MSG_FAILED"
	case 17<<16 | 14:
		return "OFPBFC_TIMEOUT"
	case 17<<16 | 15:
		return "OFPBFC_BUNDLE_IN_PROGRESS"
	}
	return ""
}

// experimenterErrorName returns the name of an error of Nicira's or of ONF's,
// or "".
func experimenterErrorName(experimenter uint32, typ uint16) string {
	switch experimenter {
	case experimenterNicira:
		return niciraErrorName(typ)
	case experimenterONF:
		return onfErrorName(typ)
	}
	return ""
}

func niciraErrorName(typ uint16) string {
	switch typ {
	case 2:
		return "NXBRC_NXM_INVALID"
	case 3:
		return "NXBRC_NXM_BAD_TYPE"
	case 4:
		return "NXBRC_MUST_BE_ZERO"
	case 5:
		return "NXBRC_BAD_REASON"
	case 6:
		return "OFPMOFC_MONITOR_EXISTS"
	case 7:
		return "OFPMOFC_BAD_FLAGS"
	case 8:
		return "OFPMOFC_UNKNOWN_MONITOR"
	case 9:
		return "NXBRC_FM_BAD_EVENT"
	case 10:
		return "NXBRC_UNENCODABLE_ERROR"
	case 11:
		return "NXBAC_MUST_BE_ZERO"
	case 12:
		return "NXFMFC_HARDWARE"
	case 13:
		return "NXFMFC_BAD_TABLE_ID"
	case 15:
		return "NXBAC_BAD_CONJUNCTION"
	case 16:
		return "NXTTMFC_BAD_COMMAND"
	case 17:
		return "NXTTMFC_BAD_OPT_LEN"
	case 18:
		return "NXTTMFC_BAD_FIELD_IDX"
	case 19:
		return "NXTTMFC_TABLE_FULL"
	case 20:
		return "NXTTMFC_ALREADY_MAPPED"
	case 21:
		return "NXTTMFC_DUP_ENTRY"
	case 22:
		return "OFPBFC_BAD_VERSION"
	case 23:
		return "NXQOFC_QUEUE_ERROR"
	case 34:
		return "NXR_NOT_SUPPORTED"
	case 35:
		return "NXR_STALE"
	case 36:
		return "NXST_NOT_CONFIGURED"
	case 37:
		return "NXFMFC_INVALID_TLV_FIELD"
	case 38:
		return "NXTTMFC_INVALID_TLV_DEL"
	case 39:
		return "NXBAC_BAD_HEADER_TYPE"
	case 40:
		return "NXBAC_UNKNOWN_ED_PROP"
	case 41:
		return "NXBAC_BAD_ED_PROP"
	case 42:
		return "NXBAC_CT_DATAPATH_SUPPORT"
	case 43:
		return "NXBMC_CT_DATAPATH_SUPPORT"
	case 44:
		return "NXTFFC_DUP_TABLE"
	}
	return ""
}

func onfErrorName(typ uint16) string {
	switch typ {
	case 2300:
		return "OFPBFC_UNKNOWN"
	case 2301:
		return "OFPBFC_EPERM"
	case 2302:
		return "OFPBFC_BAD_ID"
	case 2303:
		return "OFPBFC_BUNDLE_EXIST"
	case 2304:
		return "OFPBFC_BUNDLE_CLOSED"
	case 2305:
		return "OFPBFC_OUT_OF_BUNDLES"
	case 2306:
		return "OFPBFC_BAD_TYPE"
	case 2307:
		return "OFPBFC_BAD_FLAGS"
	case 2308:
		return "OFPBFC_MSG_BAD_LEN"
	case 2309:
		return "OFPBFC_MSG_BAD_XID"
	case 2310:
		return "OFPBFC_MSG_UNSUP"
	case 2311:
		return "OFPBFC_MSG_CONFLICT"
	case 2312:
		return "OFPBFC_MSG_TOO_MANY"
	case 2313:
		return "OFPBFC_MSG_FAILED"
	case 2314:
		return "OFPBFC_TIMEOUT"
	case 2315:
		return "OFPBFC_BUNDLE_IN_PROGRESS"
	case 2360:
		return "OFPFMFC_BAD_PRIORITY"
	case 2370:
		return "OFPACFC_INVALID"
	case 2371:
		return "OFPACFC_UNSUPPORTED"
	case 2372:
		return "OFPACFC_EPERM"
	case 2600:
		return "OFPBIC_DUP_INST"
	case 2640:
		return "OFPBRC_MULTIPART_REQUEST_TIMEOUT"
	case 2641:
		return "OFPBRC_MULTIPART_REPLY_TIMEOUT"
	case 4250:
		return "OFPBAC_BAD_SET_MASK"
	case 4443:
		return "OFPBPC_TOO_MANY"
	case 4444:
		return "OFPBPC_DUP_TYPE"
	case 4445:
		return "OFPBPC_BAD_EXPERIMENTER"
	case 4446:
		return "OFPBPC_BAD_EXP_TYPE"
	case 4447:
		return "OFPBPC_BAD_EXP_VALUE"
	case 4448:
		return "OFPBPC_EPERM"
	}
	return ""
}

// niciraErrorName10 returns the name of an error in the form that OpenFlow 1.0
// has for Nicira's: flow monitor requests are answered so in every version.
func niciraErrorName10(typ, code uint16) string {
	switch uint32(typ)<<16 | uint32(code) {
	case 0<<16 | 263:
		return "OFPBMC_BAD_FIELD"
	case 1<<16 | 256:
		return "NXBRC_NXM_INVALID"
	case 1<<16 | 257:
		return "NXBRC_NXM_BAD_TYPE"
	case 1<<16 | 258:
		return "OFPBMC_BAD_VALUE"
	case 1<<16 | 259:
		return "OFPBMC_BAD_MASK"
	case 1<<16 | 260:
		return "OFPBMC_BAD_PREREQ"
	case 1<<16 | 261:
		return "OFPBMC_DUP_FIELD"
	case 1<<16 | 262:
		return "OFPBMC_BAD_WILDCARDS"
	case 1<<16 | 264:
		return "NXBMC_CT_DATAPATH_SUPPORT"
	case 1<<16 | 265:
		return "NXBAC_CT_DATAPATH_SUPPORT"
	case 1<<16 | 512:
		return "OFPBRC_BAD_TABLE_ID"
	case 1<<16 | 513:
		return "OFPRRFC_BAD_ROLE"
	case 1<<16 | 514:
		return "OFPBRC_BAD_PORT"
	case 1<<16 | 515:
		return "NXBRC_MUST_BE_ZERO"
	case 1<<16 | 516:
		return "NXBRC_BAD_REASON"
	case 1<<16 | 517:
		return "OFPMOFC_MONITOR_EXISTS"
	case 1<<16 | 518:
		return "OFPMOFC_BAD_FLAGS"
	case 1<<16 | 519:
		return "OFPMOFC_UNKNOWN_MONITOR"
	case 1<<16 | 520:
		return "NXBRC_FM_BAD_EVENT"
	case 1<<16 | 521:
		return "NXBRC_UNENCODABLE_ERROR"
	case 1<<16 | 522:
		return "OFPBAC_MATCH_INCONSISTENT"
	case 1<<16 | 523:
		return "OFPBAC_BAD_SET_TYPE"
	case 1<<16 | 524:
		return "OFPBAC_BAD_SET_LEN"
	case 1<<16 | 525:
		return "OFPBAC_BAD_SET_ARGUMENT"
	case 1<<16 | 527:
		return "NXTTMFC_BAD_COMMAND"
	case 1<<16 | 528:
		return "NXTTMFC_BAD_OPT_LEN"
	case 1<<16 | 529:
		return "NXTTMFC_BAD_FIELD_IDX"
	case 1<<16 | 530:
		return "NXTTMFC_TABLE_FULL"
	case 1<<16 | 531:
		return "NXTTMFC_ALREADY_MAPPED"
	case 1<<16 | 532:
		return "NXTTMFC_DUP_ENTRY"
	case 1<<16 | 533:
		return "NXR_NOT_SUPPORTED"
	case 1<<16 | 534:
		return "NXR_STALE"
	case 1<<16 | 535:
		return "NXST_NOT_CONFIGURED"
	case 1<<16 | 536:
		return "NXFMFC_INVALID_TLV_FIELD"
	case 1<<16 | 537:
		return "NXTTMFC_INVALID_TLV_DEL"
	case 2<<16 | 256:
		return "NXBAC_MUST_BE_ZERO"
	case 2<<16 | 257:
		return "OFPBIC_UNSUP_INST"
	case 2<<16 | 526:
		return "NXBAC_BAD_CONJUNCTION"
	case 3<<16 | 258:
		return "OFPFMFC_BAD_FLAGS"
	case 5<<16 | 256:
		return "NXFMFC_HARDWARE"
	case 5<<16 | 257:
		return "NXFMFC_BAD_TABLE_ID"
	}
	return ""
}
