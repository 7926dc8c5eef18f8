package mapped

import (
	"os"

	"golang.org/x/sys/unix"
)

// remoteSystems are the file systems whose files are, or may be, on another machine: their
// numbers in statfs(2).
var remoteSystems = map[uint32]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.CIFS_SUPER_MAGIC:  "CIFS",
	unix.SMB2_SUPER_MAGIC:  "SMB 2",
	unix.FUSE_SUPER_MAGIC:  "FUSE", // sshfs, s3fs, gcsfuse, virtiofs
	unix.V9FS_MAGIC:        "9P",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS of the kernel",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.NCP_SUPER_MAGIC:   "NCP",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	0x01161970:             "GFS2",
	0x0bd00bd0:             "Lustre",
	0x47504653:             "GPFS",
	0x19830326:             "BeeGFS",
	0x20030528:             "OrangeFS",
	0xaad7aaea:             "PanFS",
	0x786f4256:             "folders of VirtualBox",
	0xbacbacbc:             "folders of VMware",
}

func remote(f *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &s) == nil && remoteSystems[uint32(s.Type)] != ""
}
